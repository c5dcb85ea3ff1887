"""Derivatives of normalizations: of the input, and of the weight and bias that scale it.

All formulas use deviations from the mean, as CUDA's kernels do.  Eager's CPU kernels sum products with the
values themselves, and lose digits if the mean is large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frameloom.ir import index
from frameloom.ir.lower.expr import Expr, share_of, sqrt
from frameloom.ir.lower.ops.reduce import ReductionSlice, element, reduction_slice
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, product, read
from frameloom.ir.node import Node
from frameloom.ir.symbolic.compare import require


def _weighted(grad: Expr, weight: Ref | None, at: Sequence[Node]) -> Expr:
    return grad if weight is None else grad * read(weight, at).cast(grad.dtype)


def _floating(*refs: Ref) -> None:
    for ref in refs:
        if ref.dtype is None or not ref.dtype.is_float or 0 in ref.shape:
            raise Decline


def _wanted(mask: Sequence[bool], *results: Callable[[], Expr]) -> list[Expr | None]:
    return [of() if wanted else None for wanted, of in zip(mask, results, strict=True)]


class _Rows:
    """Rows over the last dimensions; each row has its own statistics."""

    def __init__(self, grad: Ref, x: Ref, shape: Sequence[int], weight: Ref | None) -> None:
        _floating(grad, x)
        self.grad, self.x, self.weight = grad, x, weight
        self.outer, self.inner = x.ndim - len(shape), len(shape)

    def row(self, at: Sequence[Node]) -> ReductionSlice:
        inner = range(self.outer, self.x.ndim)
        return reduction_slice(self.x.shape, inner, at, keepdim=True)

    def own(self, at: Sequence[Node]) -> list[Node]:
        """Returns the position of the statistics of the row at `at`."""
        return [*at[: self.outer], *[index.index(0)] * self.inner]

    def column(self, at: Sequence[Node]) -> ReductionSlice:
        """Returns the slice of the elements of all rows at `at`, a position within a row."""
        return reduction_slice(self.x.shape, range(self.outer), at, keepdim=False)

    def given(self, at: Sequence[Node]) -> Expr:
        return _weighted(element(self.grad, at), self.weight, at[self.outer :])


@lowering("aten.native_layer_norm_backward.default")
def layer_norm_backward(
    call: Call, grad: Ref, x: Ref, shape: Sequence[int], mean: Ref, rstd: Ref, weight: Ref | None,
    bias: Ref | None, mask: Sequence[bool],
) -> list[Expr | None]:  # fmt: skip
    rows = _Rows(grad, x, shape, weight)
    _floating(mean, rstd)

    def normal(at: Sequence[Node]) -> Expr:
        value = element(x, at)
        own = rows.own(at)
        return (value - read(mean, own).cast(value.dtype)) * read(rstd, own).cast(value.dtype)

    def of_input() -> Expr:
        at = call.at(0)
        over = rows.row(at)
        scale = read(rstd, rows.own(at))
        given = rows.given(over.at)
        share = over.mean(given * normal(over.at))
        rest = rows.given(at) - over.mean(given) - normal(at) * share
        return rest * scale.cast(given.dtype)

    def of_weight() -> Expr:
        over = rows.column(call.at(1))
        return over.fold("sum", element(grad, over.at) * normal(over.at))

    def of_bias() -> Expr:
        over = rows.column(call.at(2))
        return over.fold("sum", element(grad, over.at))

    return _wanted(mask, of_input, of_weight, of_bias)


@lowering("aten._fused_rms_norm_backward.default")
def rms_norm_backward(
    call: Call, grad: Ref, x: Ref, shape: Sequence[int], rstd: Ref, weight: Ref | None,
    mask: Sequence[bool],
) -> list[Expr | None]:  # fmt: skip
    rows = _Rows(grad, x, shape, weight)
    _floating(rstd)

    def normal(at: Sequence[Node]) -> Expr:
        value = element(x, at)
        return value * read(rstd, rows.own(at)).cast(value.dtype)

    def of_input() -> Expr:
        at = call.at(0)
        over = rows.row(at)
        scale = read(rstd, rows.own(at))
        share = over.mean(rows.given(over.at) * normal(over.at))
        return (rows.given(at) - normal(at) * share) * scale.cast(share.dtype)

    def of_weight() -> Expr:
        over = rows.column(call.at(1))
        return over.fold("sum", element(grad, over.at) * normal(over.at))

    return _wanted(mask, of_input, of_weight)


@lowering("aten.native_batch_norm_backward.default")
def batch_norm_backward(
    call: Call, grad: Ref, x: Ref, weight: Ref | None, running_mean: Ref | None,
    running_var: Ref | None, save_mean: Ref | None, save_invstd: Ref | None, train: bool, eps: float,
    mask: Sequence[bool],
) -> list[Expr | None]:  # fmt: skip
    _floating(grad, x)
    if x.ndim < 2:
        raise Decline
    dims = [0, *range(2, x.ndim)]
    used = (save_mean, save_invstd) if train else (running_mean, running_var)
    if any(ref is None or ref.shape != x.shape[1:2] for ref in used):
        raise Decline

    def statistics(channel: Node) -> tuple[Expr, Expr]:
        """Returns mean and inverse deviation."""
        mean, spread = (read(ref, [channel]).wide() for ref in used if ref is not None)
        return mean, spread if train else 1 / sqrt(spread + eps)

    def sums(channel: Node) -> tuple[ReductionSlice, Expr, Expr]:
        """Returns the slice, the sum of the gradients, and the sum of their products with the deviations."""
        over = reduction_slice(x.shape, dims, [channel], keepdim=False)
        dy = element(grad, over.at)
        deviation = element(x, over.at) - statistics(channel)[0].cast(dy.dtype)
        return over, over.fold("sum", dy), over.fold("sum", deviation * dy)

    def of_input() -> Expr:
        at = call.at(0)
        dy = element(grad, at)
        mean, invstd = (e.cast(dy.dtype) for e in statistics(at[1]))
        scale = _weighted(invstd, weight, at[1:2])
        if not train:
            return dy * scale
        over, total, products = sums(at[1])
        share = share_of(over.count, dy)
        slope = products * share * invstd * invstd
        return (dy - total * share - (element(x, at) - mean) * slope) * scale

    def of_weight() -> Expr:
        (channel,) = call.at(1)
        products = sums(channel)[2]
        return products * statistics(channel)[1].cast(products.dtype)

    def of_bias() -> Expr:
        return sums(call.at(2)[0])[1]

    return _wanted(mask, of_input, of_weight, of_bias)


@lowering("aten.native_group_norm_backward.default")
def group_norm_backward(
    call: Call, grad: Ref, x: Ref, mean: Ref, rstd: Ref, weight: Ref | None, n: int, channels: int,
    pixels: int, groups: int, mask: Sequence[bool],
) -> list[Expr | None]:  # fmt: skip
    _floating(grad, x, mean, rstd)
    if channels % groups or x.ndim < 2:
        raise Decline
    width = channels // groups

    def normal(at: Sequence[Node]) -> Expr:
        value = element(x, at)
        own = [at[0], index.floordiv(at[1], width)]
        return (value - read(mean, own).cast(value.dtype)) * read(rstd, own).cast(value.dtype)

    def given(at: Sequence[Node]) -> Expr:
        return _weighted(element(grad, at), weight, at[1:2])

    def of_input() -> Expr:
        at = call.at(0)
        group = index.floordiv(at[1], width)
        inner = reduction_slice((width, *x.shape[2:]), range(x.ndim - 1), [], keepdim=False)
        channel = index.add(index.mul(group, index.index(width)), inner.at[0])
        there = [at[0], channel, *inner.at[1:]]
        share = inner.mean(given(there) * normal(there))
        rest = given(at) - inner.mean(given(there)) - normal(at) * share
        return rest * read(rstd, [at[0], group]).cast(rest.dtype)

    dims = [0, *range(2, x.ndim)]

    def of_weight() -> Expr:
        over = reduction_slice(x.shape, dims, call.at(1), keepdim=False)
        return over.fold("sum", element(grad, over.at) * normal(over.at))

    def of_bias() -> Expr:
        over = reduction_slice(x.shape, dims, call.at(2), keepdim=False)
        return over.fold("sum", element(grad, over.at))

    require(bool(product(x.shape) == n * channels * pixels), "a group norm of other sizes")
    return _wanted(mask, of_input, of_weight, of_bias)
