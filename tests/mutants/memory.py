"""Memory plans: bytes that two values have at one time."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "freed_one_step_early",
        "ir/passes/memory.py",
        "for k in range(first, last + 1):\n            needed",
        "for k in range(first, last):\n            needed",
        "the step that reads a temporary last may write its result over it",
    ),
    Mutant(
        "gap_behind_the_last_neighbour",
        "ir/passes/memory.py",
        "end = max(end, offset + length)",
        "end = offset + length",
        "a temporary is put into a gap that a longer one before it still covers",
    ),
    Mutant(
        "last_element_outside",
        "ir/passes/memory.py",
        "return item * (1 + sum((e - 1) * s",
        "return item * (sum((e - 1) * s",
        "the last element of a temporary lies in the next one",
    ),
    Mutant(
        "sized_slots_meet",
        "ir/passes/memory.py",
        "lives[b][0] > last or lives[b][1] < first",
        "lives[b][0] >= last or lives[b][1] < first",
        "with sizes that vary, a step reads and writes one slot as two tensors",
    ),
    Mutant(
        "folded_while_overwritten",
        "ir/passes/inplace.py",
        "not u.around and u.load.srcs[0] is store.offset",
        "u.load.srcs[0] is store.offset or bool(u.around)",
        "a kernel that folds rows of a temporary writes its results into that temporary",
    ),
    Mutant(
        "overwritten_though_read_later",
        "ir/passes/inplace.py",
        "if last[old] != k or old in renamed",
        "if old in renamed",
        "a kernel writes over a temporary that a later step reads",
    ),
    Mutant(
        "library_result_of_another_shape",
        "ir/passes/inplace.py",
        "if old in rigid and (old.shape, old.strides) != (new.shape, new.strides):",
        "if old in rigid and old.shape != new.shape:",
        "a matrix product is written with the strides of the transposed result that takes its place",
    ),
]
