"""How the CPU's kernels read operands of other dtypes than they compute in: cast first, which lays repeated elements out.

TensorIterator casts such operands to the common dtype before it orders the dimensions of the result, on the CPU alone.  The cast of an
expanded tensor has strides of its own, which then count; meta kernels and kernels for GPUs cast nothing.
Source: `compute_types` of ATen's TensorIterator.
"""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.shapes import is_pointwise, pointwise_dtype, tiny
from frameloom.capture.sized_rules import dense_like
from frameloom.ir.size import Size

aten = torch.ops.aten
# Read operands as they are, whatever the dtype of others.
UNCAST = frozenset({
    aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar,
    aten.masked_fill.Scalar, aten.masked_fill.Tensor,
})  # fmt: skip


def as_cast(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands of an op on the CPU, meta tensors, as its kernel gets them."""
    if not any(map(_is_repeated, args)) or func in UNCAST or not is_pointwise(func):
        return args
    operands = [a for a in args if isinstance(a, torch.Tensor | Size | int | float | complex)]
    if len(operands) == 1:
        return args
    common = _common_dtype(func, args, operands)
    return tuple(
        dense_like(a, common) if _is_repeated(a) and a.dtype is not common else a for a in args
    )


def _is_repeated(a: Any) -> bool:
    if not isinstance(a, torch.Tensor):
        return False
    return any(not isinstance(s, Size) and s == 0 for s in a.stride())


def _common_dtype(func: Any, args: tuple[Any, ...], operands: list[Any]) -> torch.dtype:
    """That of the result, but for questions, whose result is a bool."""
    made = pointwise_dtype(func, args, {})
    return made if made is not torch.bool else torch.result_type(*map(tiny, operands[:2]))
