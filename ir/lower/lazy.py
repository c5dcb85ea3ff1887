"""Views that PyTorch conjugates or negates when they are read (`x.conj()`, `x.imag` of such): kernels and library calls get a
copy for which that is done, the program gets such a view.
"""

from __future__ import annotations

from typing import Any

RESOLVED = {"conj": "aten._conj_physical.default", "neg": "aten.neg.default"}
VIEWED = {"conj": "aten._conj.default", "neg": "aten._neg_view.default"}


def bits_of(val: Any) -> tuple[str, ...]:
    """What is still to be done to the memory of a captured value."""
    if isinstance(val, (tuple, list)) or not hasattr(val, "is_conj"):
        return ()
    return ("conj",) * bool(val.is_conj()) + ("neg",) * bool(val.is_neg())
