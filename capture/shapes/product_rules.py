"""Rules of shapes/registry.py for products of matrices and vectors."""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.shapes.registry import (
    broadcast,
    empty,
    rule,
)

aten = torch.ops.aten


def _check_dtypes(*tensors: torch.Tensor) -> None:
    """Raises for different dtypes, which meta kernels do not check."""
    if len({t.dtype for t in tensors}) > 1:
        raise RuntimeError("factors of different dtypes")


@rule(aten.mm.default)
def _mm(func: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    _check_dtypes(a, b)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        return None
    return empty((a.shape[0], b.shape[1]), a.dtype)


@rule(aten.addmm.default)
def _addmm(
    func: Any,
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: Any = 1,
    alpha: Any = 1,
) -> Any:
    _check_dtypes(a, b, bias)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        return None
    shape = (a.shape[0], b.shape[1])
    if broadcast(bias.shape, shape) != shape:
        return None
    return empty(shape, a.dtype)


@rule(aten.bmm.default)
def _bmm(func: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    _check_dtypes(a, b)
    if a.dim() != 3 or b.dim() != 3:
        return None
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        return None
    return empty((a.shape[0], a.shape[1], b.shape[2]), a.dtype)


@rule(aten.mv.default)
def _mv(func: Any, a: torch.Tensor, x: torch.Tensor) -> Any:
    _check_dtypes(a, x)
    if a.dim() != 2 or x.dim() != 1 or a.shape[1] != x.shape[0]:
        return None
    return empty((a.shape[0],), a.dtype)


@rule(aten.dot.default)
def _dot(func: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    _check_dtypes(a, b)
    if a.dim() != 1 or b.dim() != 1 or a.shape[0] != b.shape[0]:
        return None
    return empty((), a.dtype)


@rule(aten.baddbmm.default)
def _baddbmm(
    func: Any, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    out = _bmm(aten.bmm.default, a, b)
    if out is None or x.dtype != out.dtype or broadcast(x.shape, out.shape) != tuple(out.shape):
        return None
    return out
