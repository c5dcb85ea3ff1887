"""Rules of shapes/registry.py for ops whose kernels call other ops: results have the layout that those calls
give."""

from __future__ import annotations

import math
from typing import Any

import torch

from frameloom.capture.shapes.registry import dense_like, empty, iterated, pointwise, rule
from frameloom.capture.tensors.sized import empty_strided

aten = torch.ops.aten


@rule(aten.isinf.default)
def _isinf(func: Any, x: torch.Tensor) -> Any:
    """Computes `x.abs() == inf`; for complex numbers it checks both parts, and for ints nothing."""
    if x.is_complex():
        real = x.dtype.to_real()
        x = empty_strided(x.shape, [2 * s for s in x.stride()], real)
    elif not x.is_floating_point():
        return dense_like(x, torch.bool)
    return pointwise(aten.eq.Scalar, pointwise(aten.abs.default, x), math.inf)


@rule(aten.rsub.Tensor)
def _rsub(func: Any, x: torch.Tensor, other: torch.Tensor, alpha: Any = 1) -> Any:
    return pointwise(aten.sub.Tensor, other, x, alpha=alpha)


@rule(aten.binary_cross_entropy_with_logits.default)
def _binary_cross_entropy(
    func: Any, x: torch.Tensor, target: torch.Tensor, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:  # fmt: skip
    """`1 - target` in C++ fills an `empty_like(target)`, and the rest is in place."""
    if reduction or x.shape != target.shape:
        return None
    return dense_like(target)


@rule(aten.binary_cross_entropy.default)
def _plain_binary_cross_entropy(
    func: Any, x: torch.Tensor, target: torch.Tensor, weight: Any = None, reduction: int = 1
) -> Any:
    return None if reduction or x.shape != target.shape else dense_like(x)


@rule(aten.mse_loss.default, aten.smooth_l1_loss.default)
def _iterated_loss(
    func: Any, x: torch.Tensor, target: torch.Tensor, reduction: int = 1, *args: Any
) -> Any:
    dtype = torch.promote_types(x.dtype, target.dtype)
    return empty((), dtype) if reduction else iterated([x, target], dtype)


@rule(aten.huber_loss.default)
def _huber_loss(
    func: Any, x: torch.Tensor, target: torch.Tensor, reduction: int = 1, *args: Any
) -> Any:
    """The kernel writes to an `empty_like(x)`, for any dtype of the target."""
    if x.shape != target.shape:
        return None
    return empty((), x.dtype) if reduction else dense_like(x)


@rule(aten._unsafe_masked_index_put_accumulate.default)
def _accumulated(func: Any, x: torch.Tensor, *args: Any) -> Any:
    return dense_like(x)


@rule(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default)
def _softmax_backward(
    func: Any, grad: torch.Tensor, output: torch.Tensor, dim: int, dtype: torch.dtype
) -> Any:
    return empty(grad.shape, dtype) if grad.shape == output.shape else None
