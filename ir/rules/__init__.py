"""Rewrite rules, one file per subject.  Each gives the same bits for every input (NaN counts as one value).

Floats are not reassociated, and a cast through a narrower type stays: it rounds.
"""

from frameloom.ir.rules.algebra import ALGEBRA_RULES
from frameloom.ir.rules.casts import CAST_RULES
from frameloom.ir.rules.folding import FOLDING_RULES, FOLDING_RULES_FOR_ANY_DEVICE
from frameloom.ir.rules.selection import SELECTION_RULES

_ON_ANY_DEVICE = (*CAST_RULES, *ALGEBRA_RULES, *SELECTION_RULES)
ALL_RULES = (*FOLDING_RULES, *_ON_ANY_DEVICE)  # for kernels on the CPU
GPU_RULES = (*FOLDING_RULES_FOR_ANY_DEVICE, *_ON_ANY_DEVICE)
