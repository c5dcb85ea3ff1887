"""Derivatives of softmax, log-softmax, negative log likelihood and pooling (on slices and windows)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from frameloom.ir import index
from frameloom.ir.lower.expr import Expr, exp, total, where
from frameloom.ir.lower.ops.gather import data_index
from frameloom.ir.lower.ops.loss import MEAN, NONE
from frameloom.ir.lower.ops.pool import each
from frameloom.ir.lower.ops.reduce import ReductionSlice, element, over_dims
from frameloom.ir.lower.ops.unfold import Side
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, read
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import conjunction

MAX_WINDOWS = 16  # windows that contain one element


def _parts(call: Call, grad: Ref, y: Ref, dim: int) -> tuple[ReductionSlice, Expr, Expr]:
    """Returns the slice that contains the call's position, and gradient and result at the position."""
    if y.dtype is None or not y.dtype.is_float:
        raise Decline
    at = call.at()
    over = over_dims(call, y, dim, keepdim=True)
    dy, value = element(grad, at), element(y, at)
    if dy.dtype is not value.dtype:
        raise Decline
    return over, dy, value


@lowering("aten._softmax_backward_data.default")
def softmax_backward(call: Call, grad: Ref, y: Ref, dim: int, dtype: object) -> Expr:
    over, dy, probability = _parts(call, grad, y, dim)
    total = over.fold("sum", element(grad, over.at) * element(y, over.at))
    if is_cuda(call.device):
        return dy * probability - probability * total
    return (dy - total) * probability


@lowering("aten._log_softmax_backward_data.default")
def log_softmax_backward(call: Call, grad: Ref, y: Ref, dim: int, dtype: object) -> Expr:
    over, dy, value = _parts(call, grad, y, dim)
    return dy - exp(value) * over.fold("sum", element(grad, over.at))


@lowering("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss_backward(
    call: Call, grad: Ref, x: Ref, target: Ref, weight: Ref | None, reduction: int, ignored: int,
    total: Ref,
) -> Expr:  # fmt: skip
    if x.dtype is None or target.shape != x.shape[:1] * (x.ndim > 1) + x.shape[2:]:
        raise Decline
    at = call.at()
    where_class = 0 if x.ndim == 1 else 1
    sample = [*at[:where_class], *at[where_class + 1 :]]
    chosen = data_index(target, sample)
    given = read(grad, sample if reduction == NONE else []).wide()
    if reduction == MEAN:
        given = (given / read(total, []).cast(given.dtype)).cast(call.dtype).wide()
    if weight is not None:
        given = given * read(weight, [at[where_class]]).cast(given.dtype)
    hit = chosen.eq(Expr(at[where_class]).cast(chosen.dtype)) & chosen.ne(ignored)
    return where(hit, -given, 0.0)


@lowering("aten.max_pool2d_with_indices_backward.default")
def max_pool_backward(
    call: Call, grad: Ref, x: Ref, size: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool, indices: Ref,
) -> Expr:  # fmt: skip
    """Returns the sum of the gradients of all windows that contain the element and chose it; windows in
    eager's order."""
    given = [each(v, 2) for v in (size, dilation, padding, stride or size)]
    if any(d != 1 for d in given[1]) or grad.dtype is None or not grad.dtype.is_float:
        raise Decline
    sides = [
        Side(*parameters) for parameters in zip(x.shape[-2:], *given, grad.shape[-2:], strict=True)
    ]
    *batch, y, z = call.at()
    own = index.add(index.mul(y, x.shape[-1]), z)
    down, right = (s.holders(p)[::-1] for s, p in zip(sides, (y, z), strict=True))
    if not 0 < len(down) * len(right) <= MAX_WINDOWS:
        raise Decline
    values = []
    for (above, _, in_rows), (left, _, in_columns) in itertools.product(down, right):
        inside = conjunction(in_rows, in_columns)
        there = [*batch, above, left]
        chosen = read(indices, there, inside)
        hit = Expr(inside) & chosen.eq(Expr(own).cast(chosen.dtype))
        values.append(where(hit, read(grad, there, inside).wide(), 0.0))
    return total(values)
