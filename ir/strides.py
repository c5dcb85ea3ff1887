"""Properties of a tensor's memory that follow from its strides."""

from __future__ import annotations

from collections.abc import Sequence

from frameloom.ir.symbolic.expr import Int, hint_of, may_exceed_1


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may share memory.  Returns False only if every stride exceeds the reach of the
    smaller ones."""
    reach: Int = 0
    pairs = [(s, e) for s, e in zip(strides, shape, strict=True) if may_exceed_1(e)]
    for stride, extent in sorted(pairs, key=lambda pair: tuple(map(hint_of, pair))):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False
