"""Derivatives of what works on lines and windows of a tensor: softmax and its logarithm, the negative log likelihood, pooling."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from frameloom.ir import index
from frameloom.ir.lower.copies import within
from frameloom.ir.lower.expr import Expr, exp, where
from frameloom.ir.lower.gather import data_index
from frameloom.ir.lower.reduce import Line, element, line
from frameloom.ir.lower.table import Call, Decline, Ref, dimension, lowering, read
from frameloom.ir.node import Node
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import conjunction

LARGEST = 16  # windows that one element is in


def _over(call: Call, y: Ref, dim: int) -> Line:
    if y.dtype is None or not y.dtype.is_float:
        raise Decline
    if not y.ndim:
        return Line([], (), 1)
    return line(y.shape, [dimension(dim, y.ndim)], call.at(), keepdim=True)


@lowering("aten._softmax_backward_data.default")
def softmax_backward(call: Call, grad: Ref, y: Ref, dim: int, dtype: object) -> Expr:
    over = _over(call, y, dim)
    dy, probability = element(grad, call.at()), element(y, call.at())
    if dy.dtype is not probability.dtype:
        raise Decline
    total = over.fold("sum", element(grad, over.at) * element(y, over.at))
    if is_cuda(call.device):
        return dy * probability - probability * total
    return (dy - total) * probability


@lowering("aten._log_softmax_backward_data.default")
def log_softmax_backward(call: Call, grad: Ref, y: Ref, dim: int, dtype: object) -> Expr:
    over = _over(call, y, dim)
    dy, value = element(grad, call.at()), element(y, call.at())
    if dy.dtype is not value.dtype:
        raise Decline
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
    given = read(grad, sample if reduction == 0 else []).wide()
    if reduction == 1:
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
    """Of every window that an element is in, the gradient if the window chose it; windows in eager's order."""
    size, padding, dilation = (_pair(v) for v in (size, padding, dilation))
    stride = _pair(stride) if len(stride) else size
    if any(d != 1 for d in dilation) or grad.dtype is None or not grad.dtype.is_float:
        raise Decline
    at = call.at()
    own = index.add(index.mul(at[-2], x.shape[-1]), at[-1])
    found = None
    for windows in _windows(at[-2:], size, stride, padding):
        inside = conjunction(
            *(within(w, 0, e) for w, e in zip(windows, grad.shape[-2:], strict=True))
        )
        there = [*at[:-2], *windows]
        chosen = read(indices, there, inside)
        hit = Expr(inside) & chosen.eq(Expr(own).cast(chosen.dtype))
        value = where(hit, read(grad, there, inside).wide(), 0.0)
        found = value if found is None else found + value
    assert found is not None
    return found


def _pair(values: Sequence[int]) -> list[int]:
    return [values[0]] * 2 if len(values) == 1 else list(values)


def _windows(
    at: Sequence[Node], size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> list[list[Node]]:
    """Of a position in the image: all windows that it can be in; some may not exist."""
    lines = []
    for p, k, s, pad in zip(at, size, stride, padding, strict=True):
        count = -(-k // s)
        last = index.floordiv(index.add(p, index.index(pad)), s)
        lines.append([index.add(last, index.index(j - count + 1)) for j in range(count)])
    found = [list(pair) for pair in itertools.product(*lines)]
    if len(found) > LARGEST:
        raise Decline
    return found
