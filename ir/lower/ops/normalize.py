"""Normalizations: layer, group, batch and RMS norm, with the statistics that they return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from frameloom.ir import index
from frameloom.ir.lower.expr import Expr, rsqrt, sqrt
from frameloom.ir.lower.geometry import contiguous_strides, same_places
from frameloom.ir.lower.ops.reduce import ReductionSlice, element, reduction_slice
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, read
from frameloom.ir.node import Node
from frameloom.ir.symbolic.expr import Size

At = Sequence[Node]


@dataclass(frozen=True)
class Groups:
    """How the elements of a tensor are grouped: those of one group are normalized by common statistics."""

    x: Ref
    own: Callable[[At], At]  # position of an element -> position of its statistics
    over: Callable[[At], ReductionSlice]  # position of statistics -> the group
    parameters: slice  # the dimensions that weight and bias have
    scaled_by: Callable[
        [At], ReductionSlice
    ]  # position in the weight -> the elements that it scales

    def moments(self, own: At) -> tuple[Expr, Expr]:
        """Returns mean and biased variance of the group whose statistics are at `own`."""
        over = self.over(own)
        value = element(self.x, over.at)
        mean = over.mean(value)
        deviation = value - mean
        return mean, over.mean(deviation * deviation)

    def scaled(self, value: Expr, weight: Ref | None, bias: Ref | None, at: At) -> Expr:
        """Returns the normalized value of the element at `at`, scaled by the parameters."""
        place = at[self.parameters]
        if weight is not None:
            value = value * read(weight, place).cast(value.dtype)
        return value if bias is None else value + read(bias, place).cast(value.dtype)


def of_rows(x: Ref, normalized_shape: Sequence[int]) -> Groups:
    """A group is a row over the last dimensions."""
    outer = x.ndim - len(normalized_shape)
    return Groups(
        x,
        own=lambda at: [*at[:outer], *[index.index(0)] * len(normalized_shape)],
        over=lambda own: reduction_slice(x.shape, range(outer, x.ndim), own, keepdim=True),
        parameters=slice(outer, None),
        scaled_by=lambda at: reduction_slice(x.shape, range(outer), at, keepdim=False),
    )


def of_channels(x: Ref) -> Groups:
    """A group is a channel: all dimensions except dimension 1."""
    if x.ndim < 2 or 0 in x.shape:
        raise Decline

    def over(own: At) -> ReductionSlice:
        return reduction_slice(x.shape, [0, *range(2, x.ndim)], own, keepdim=False)

    return Groups(x, lambda at: at[1:2], over, slice(1, 2), over)


def of_channel_groups(x: Ref, channels: int, groups: int) -> Groups:
    """A group is some neighbouring channels of one sample."""
    if x.ndim < 2 or channels % groups:
        raise Decline
    width = channels // groups

    def over(own: At) -> ReductionSlice:
        inner = reduction_slice((width, *x.shape[2:]), range(x.ndim - 1), [], keepdim=False)
        channel = index.add(index.mul(own[1], index.index(width)), inner.at[0])
        return ReductionSlice([own[0], channel, *inner.at[1:]], inner.axes, inner.count)

    return Groups(
        x,
        own=lambda at: [at[0], index.floordiv(at[1], width)],
        over=over,
        parameters=slice(1, 2),
        scaled_by=of_channels(x).over,
    )


def _normalized(
    call: Call, groups: Groups, weight: Ref | None, bias: Ref | None, eps: float,
    inverse: Callable[[Expr], Expr] = rsqrt,
) -> list[Expr | None]:  # fmt: skip
    """Returns the normalized tensor, and mean and inverse deviation of every group."""

    def statistics(own: At) -> tuple[Expr, Expr]:
        mean, variance = groups.moments(own)
        return mean, inverse(variance + eps)

    at = call.at()
    mean, scale = statistics(groups.own(at))
    normal = groups.scaled((element(groups.x, at) - mean) * scale, weight, bias, at)
    return [normal, *statistics(call.at(1))]


@lowering("aten.native_layer_norm.default")
def layer_norm(
    call: Call, x: Ref, shape: Sequence[int], weight: Ref | None, bias: Ref | None, eps: float
) -> list[Expr | None]:
    return _normalized(call, of_rows(x, shape), weight, bias, eps)


@lowering("aten._fused_rms_norm.default")
def rms_norm(
    call: Call, x: Ref, shape: Sequence[int], weight: Ref | None, eps: float | None
) -> list[Expr | None]:
    rows = of_rows(x, shape)

    def scale(own: At) -> Expr:
        over = rows.over(own)
        value = element(x, over.at)
        small = torch.finfo(value.dtype.to_torch()).eps if eps is None else eps
        return rsqrt(over.mean(value * value) + small)

    at = call.at()
    normal = rows.scaled(element(x, at) * scale(rows.own(at)), weight, None, at)
    return [normal, scale(call.at(1))]


def _is_ordered(x: Ref) -> bool:
    """Whether the tensor is contiguous or channels last: eager refuses others."""
    last = [0, *range(2, x.ndim), 1]
    return any(
        same_places(shape, strides, contiguous_strides(shape))
        for shape, strides in (
            (x.shape, x.strides), ([x.shape[d] for d in last], [x.strides[d] for d in last]),
        )
    )  # fmt: skip


@lowering("aten.native_group_norm.default")
def group_norm(
    call: Call, x: Ref, weight: Ref | None, bias: Ref | None, n: int, channels: int, pixels: int,
    groups: int, eps: float,
) -> list[Expr | None]:  # fmt: skip
    if 0 in x.shape or not _is_ordered(x):
        raise Decline
    return _normalized(call, of_channel_groups(x, channels, groups), weight, bias, eps)


# --- batch norm: every result except the first is per channel


def inverse_root(variance: Expr) -> Expr:
    """Returns the inverse deviation as eager's batch norms compute it."""
    return 1 / sqrt(variance)


@lowering("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    call: Call, x: Ref, weight: Ref | None, bias: Ref | None, running_mean: Ref, running_var: Ref,
    training: bool, momentum: float, eps: float,
) -> list[Expr | None]:  # fmt: skip
    if not training:
        raise Decline
    channels = of_channels(x)

    def updated(result: int, running: Ref, new: Expr) -> Expr:
        old = read(running, call.at(result)).wide()
        return old * (1 - momentum) + new.cast(old.dtype) * momentum

    mean, _ = channels.moments(call.at(3))
    _, variance = channels.moments(call.at(4))
    unbiased = _unbiased(variance, channels.over(call.at(4)).count)
    return [
        *_normalized(call, channels, weight, bias, eps, inverse_root),
        updated(3, running_mean, mean),
        updated(4, running_var, unbiased),
    ]


def _unbiased(variance: Expr, count: int) -> Expr:
    if not count > 1:
        return variance / 0.0
    if isinstance(count, Size):
        return variance * count / (count - 1)
    return variance * (count / (count - 1))


@lowering("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    call: Call, x: Ref, weight: Ref | None, bias: Ref | None, training: bool, momentum: float,
    eps: float,
) -> list[Expr | None]:  # fmt: skip
    return _normalized(call, of_channels(x), weight, bias, eps, inverse_root)


@lowering("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    call: Call, x: Ref, weight: Ref | None, bias: Ref | None, running_mean: Ref, running_var: Ref,
    momentum: float, eps: float,
) -> list[Expr | None]:  # fmt: skip
    channels, at = of_channels(x), call.at()
    value = element(x, at)
    mean, variance = (
        read(running, channels.own(at)).cast(value.dtype) for running in (running_mean, running_var)
    )
    normal = (value - mean) * inverse_root(variance + eps)
    return [channels.scaled(normal, weight, bias, at), None, None]


@lowering("aten.native_batch_norm.default", "aten._native_batch_norm_legit.default")
def native_batch_norm(
    call: Call, x: Ref, weight: Ref | None, bias: Ref | None, running_mean: Ref | None,
    running_var: Ref | None, training: bool, momentum: float, eps: float,
) -> list[Expr | None]:  # fmt: skip
    # In training, with running statistics the op writes to them, although its schema does not say so; the
    # library does that.
    if (running_mean is None) != training or (running_var is None) != training:
        raise Decline
    if running_mean is None or running_var is None:
        return batch_norm_no_stats(call, x, weight, bias, training, momentum, eps)
    return batch_norm_no_training(call, x, weight, bias, running_mean, running_var, momentum, eps)
