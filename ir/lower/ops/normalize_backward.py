"""Derivatives of normalizations: of the input, and of the weight and bias that scale it.

All formulas use deviations from the mean, as CUDA's kernels do.  Eager's CPU kernels sum products with the
values themselves, and lose digits if the mean is large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frameloom.ir.lower.expr import Expr, share_of
from frameloom.ir.lower.ops.normalize import (
    At,
    Groups,
    inverse_root,
    of_channel_groups,
    of_channels,
    of_rows,
)
from frameloom.ir.lower.ops.reduce import element
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, product, read
from frameloom.ir.symbolic.compare import require


def _floating(*refs: Ref) -> None:
    for ref in refs:
        if ref.dtype is None or not ref.dtype.is_float or 0 in ref.shape:
            raise Decline


def _wanted(mask: Sequence[bool], *results: Callable[[], Expr]) -> list[Expr | None]:
    return [of() if wanted else None for wanted, of in zip(mask, results, strict=False)]


def _derivatives(
    call: Call, groups: Groups, grad: Ref, mean: Ref | None, rstd: Ref, weight: Ref | None,
    mask: Sequence[bool],
) -> list[Expr | None]:  # fmt: skip
    """`mean` is None if the normalization does not subtract it."""

    def normal(at: At) -> Expr:
        value = element(groups.x, at)
        own = groups.own(at)
        if mean is not None:
            value = value - read(mean, own).cast(value.dtype)
        return value * read(rstd, own).cast(value.dtype)

    def given(at: At) -> Expr:
        return groups.scaled(element(grad, at), weight, None, at)

    def of_input() -> Expr:
        at = call.at(0)
        own = groups.own(at)
        over = groups.over(own)
        share = over.mean(given(over.at) * normal(over.at))
        rest = given(at)
        if mean is not None:
            rest = rest - over.mean(given(over.at))
        rest = rest - normal(at) * share
        return rest * read(rstd, own).cast(rest.dtype)

    def of_weight() -> Expr:
        over = groups.scaled_by(call.at(1))
        return over.fold("sum", element(grad, over.at) * normal(over.at))

    def of_bias() -> Expr:
        over = groups.scaled_by(call.at(2))
        return over.fold("sum", element(grad, over.at))

    return _wanted(mask, of_input, of_weight, of_bias)


@lowering("aten.native_layer_norm_backward.default")
def layer_norm_backward(
    call: Call, grad: Ref, x: Ref, shape: Sequence[int], mean: Ref, rstd: Ref, weight: Ref | None,
    bias: Ref | None, mask: Sequence[bool],
) -> list[Expr | None]:  # fmt: skip
    _floating(grad, x, mean, rstd)
    return _derivatives(call, of_rows(x, shape), grad, mean, rstd, weight, mask)


@lowering("aten._fused_rms_norm_backward.default")
def rms_norm_backward(
    call: Call, grad: Ref, x: Ref, shape: Sequence[int], rstd: Ref, weight: Ref | None,
    mask: Sequence[bool],
) -> list[Expr | None]:  # fmt: skip
    _floating(grad, x, rstd)
    return _derivatives(call, of_rows(x, shape), grad, None, rstd, weight, mask)


@lowering("aten.native_group_norm_backward.default")
def group_norm_backward(
    call: Call, grad: Ref, x: Ref, mean: Ref, rstd: Ref, weight: Ref | None, n: int, channels: int,
    pixels: int, groups: int, mask: Sequence[bool],
) -> list[Expr | None]:  # fmt: skip
    _floating(grad, x, mean, rstd)
    own = of_channel_groups(x, channels, groups)
    require(bool(product(x.shape) == n * channels * pixels), "a group norm of other sizes")
    return _derivatives(call, own, grad, mean, rstd, weight, mask)


@lowering("aten.native_batch_norm_backward.default")
def batch_norm_backward(
    call: Call, grad: Ref, x: Ref, weight: Ref | None, running_mean: Ref | None,
    running_var: Ref | None, save_mean: Ref | None, save_invstd: Ref | None, train: bool, eps: float,
    mask: Sequence[bool],
) -> list[Expr | None]:  # fmt: skip
    _floating(grad, x)
    channels = of_channels(x)
    used = (save_mean, save_invstd) if train else (running_mean, running_var)
    if any(ref is None or ref.shape != x.shape[1:2] for ref in used):
        raise Decline

    def statistics(own: At) -> tuple[Expr, Expr]:
        """Returns mean and inverse deviation."""
        mean, spread = (read(ref, own).wide() for ref in used if ref is not None)
        return mean, spread if train else inverse_root(spread + eps)

    def products(own: At) -> Expr:
        """Returns the sum of the products of gradients and deviations."""
        over = channels.over(own)
        dy = element(grad, over.at)
        deviation = element(x, over.at) - statistics(own)[0].cast(dy.dtype)
        return over.fold("sum", deviation * dy)

    def total(own: At) -> Expr:
        """Returns the sum of the gradients."""
        over = channels.over(own)
        return over.fold("sum", element(grad, over.at))

    def of_input() -> Expr:
        at = call.at(0)
        own = channels.own(at)
        dy = element(grad, at)
        mean, invstd = (e.cast(dy.dtype) for e in statistics(own))
        scale = channels.scaled(invstd, weight, None, at)
        if not train:
            return dy * scale
        share = share_of(channels.over(own).count, dy)
        slope = products(own) * share * invstd * invstd
        return (dy - total(own) * share - (element(x, at) - mean) * slope) * scale

    def of_weight() -> Expr:
        sums = products(call.at(1))
        return sums * statistics(call.at(1))[1].cast(sums.dtype)

    return _wanted(mask, of_input, of_weight, lambda: total(call.at(2)))
