"""What strides say about the memory of a tensor."""

from __future__ import annotations

from collections.abc import Sequence


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may lie in one place: false only where no stride is below the reach of the smaller ones."""
    reach = 0
    for stride, extent in sorted((s, e) for s, e in zip(strides, shape, strict=True) if e > 1):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False
