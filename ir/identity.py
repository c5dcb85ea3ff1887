"""The initial values of reductions."""

from __future__ import annotations

from frameloom.ir.dtype import DType


def identity(kind: str, dtype: DType) -> bool | int | float:
    """Returns the identity of a reduction: a value that does not change the result."""
    if dtype is DType.BOOL:
        return kind in ("all", "min", "prod", "argmin")
    if kind in ("sum", "any"):
        return 0
    if kind in ("prod", "all"):
        return 1
    if kind == "logaddexp":
        return float("-inf")
    low = kind in ("max", "argmax")
    if dtype.is_float:
        return float("-inf") if low else float("inf")
    if dtype.kind == "u":
        return 0 if low else (1 << dtype.bits) - 1
    return -(1 << dtype.bits - 1) if low else (1 << dtype.bits - 1) - 1
