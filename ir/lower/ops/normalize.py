"""Normalizations: layer, group, batch and RMS norm, with the statistics that they return."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from frameloom.ir import index
from frameloom.ir.lower.expr import Expr, rsqrt, sqrt
from frameloom.ir.lower.ops.reduce import ReductionSlice, element, reduction_slice
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, product, read
from frameloom.ir.node import Node
from frameloom.ir.symbolic.expr import Size


def moments(over: ReductionSlice, value: Expr) -> tuple[Expr, Expr]:
    """Returns mean and biased variance of a slice."""
    mean = over.mean(value)
    deviation = value - mean
    return mean, over.mean(deviation * deviation)


def _scaled(value: Expr, weight: Ref | None, bias: Ref | None, at: Sequence[Node]) -> Expr:
    if weight is not None:
        value = value * read(weight, at).cast(value.dtype)
    return value if bias is None else value + read(bias, at).cast(value.dtype)


@lowering("aten.native_layer_norm.default")
def layer_norm(
    call: Call,
    x: Ref,
    normalized_shape: Sequence[int],
    weight: Ref | None,
    bias: Ref | None,
    eps: float,
) -> list[Expr | None]:
    outer = x.ndim - len(normalized_shape)
    dims = list(range(outer, x.ndim))

    def statistics(result: int) -> tuple[Expr, Expr]:
        over = reduction_slice(x.shape, dims, call.at(result), keepdim=True)
        mean, variance = moments(over, element(x, over.at))
        return mean, rsqrt(variance + eps)

    mean, rstd = statistics(0)
    at = call.at()
    normal = _scaled((element(x, at) - mean) * rstd, weight, bias, at[outer:])
    saved_mean, saved_rstd = statistics(1)
    return [normal, saved_mean, saved_rstd]


@lowering("aten._fused_rms_norm.default")
def rms_norm(
    call: Call, x: Ref, normalized_shape: Sequence[int], weight: Ref | None, eps: float | None
) -> list[Expr | None]:
    outer = x.ndim - len(normalized_shape)
    dims = list(range(outer, x.ndim))

    def scale(result: int) -> Expr:
        over = reduction_slice(x.shape, dims, call.at(result), keepdim=True)
        value = element(x, over.at)
        small = torch.finfo(value.dtype.to_torch()).eps if eps is None else eps
        return rsqrt(over.mean(value * value) + small)

    at = call.at()
    return [_scaled(element(x, at) * scale(0), weight, None, at[outer:]), scale(1)]


def _is_ordered(x: Ref) -> bool:
    """Whether the tensor is contiguous or channels last: eager refuses others."""
    last = [0, *range(2, x.ndim), 1]
    for order in (range(x.ndim), last):
        step, good = 1, True
        for d in reversed(order):
            good &= x.shape[d] == 1 or x.strides[d] == step
            step *= x.shape[d]
        if good:
            return True
    return False


@lowering("aten.native_group_norm.default")
def group_norm(
    call: Call,
    x: Ref,
    weight: Ref | None,
    bias: Ref | None,
    n: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> list[Expr | None]:
    if channels % groups or 0 in x.shape or not _is_ordered(x):
        raise Decline
    width = channels // groups

    def statistics(batch: Node, group: Node) -> tuple[Expr, Expr]:
        # One slice consists of the channels of a group with all their elements.
        inner = reduction_slice((width, *x.shape[2:]), range(x.ndim - 1), [], keepdim=False)
        channel = index.add(index.mul(group, index.index(width)), inner.at[0])
        value = element(x, [batch, channel, *inner.at[1:]])
        mean, variance = moments(inner, value)
        return mean, rsqrt(variance + eps)

    at = call.at()
    mean, rstd = statistics(at[0], index.floordiv(at[1], width))
    normal = _scaled((element(x, at) - mean) * rstd, weight, bias, at[1:2])
    saved_mean, saved_rstd = statistics(*call.at(1))
    return [normal, saved_mean, saved_rstd]


# --- batch norm: every result except the first is per channel


class _Batch:
    """Statistics over all dimensions except the channels (dimension 1)."""

    def __init__(self, call: Call, x: Ref, eps: float) -> None:
        if x.ndim < 2 or 0 in x.shape:
            raise Decline
        self.call, self.x, self.eps = call, x, eps
        self.dims = [0, *range(2, x.ndim)]
        self.count = product([x.shape[d] for d in self.dims])

    def moments(self, channel: Node) -> tuple[Expr, Expr]:
        over = reduction_slice(self.x.shape, self.dims, [channel], keepdim=False)
        return moments(over, element(self.x, over.at))

    def normal(self, weight: Ref | None, bias: Ref | None, mean: Expr, variance: Expr) -> Expr:
        at = self.call.at()
        value = element(self.x, at)
        scale = 1 / sqrt(variance.cast(value.dtype) + self.eps)
        return _scaled((value - mean.cast(value.dtype)) * scale, weight, bias, at[1:2])

    def trained(self, weight: Ref | None, bias: Ref | None) -> list[Expr | None]:
        """Returns the normalized tensor, mean and inverse deviation."""
        mean, variance = self.moments(self.call.at()[1])
        saved_mean, saved_variance = self.moments(self.call.at(1)[0])
        return [
            self.normal(weight, bias, mean, variance),
            saved_mean,
            1 / sqrt(saved_variance + self.eps),
        ]

    def evaluated(self, weight: Ref | None, bias: Ref | None, mean: Ref, variance: Ref) -> Expr:
        channel = self.call.at()[1:2]
        return self.normal(weight, bias, read(mean, channel), read(variance, channel))

    def _unbiased(self, variance: Expr) -> Expr:
        if not self.count > 1:
            return variance / 0.0
        if isinstance(self.count, Size):
            return variance * self.count / (self.count - 1)
        return variance * (self.count / (self.count - 1))

    def updated(self, result: int, running: Ref, momentum: float, which: int) -> Expr:
        """Returns running * (1 - momentum) + new * momentum, with the unbiased variance."""
        channel = self.call.at(result)
        new = self.moments(channel[0])[which]
        if which == 1:
            new = self._unbiased(new)
        old = read(running, channel).wide()
        return old * (1 - momentum) + new.cast(old.dtype) * momentum


@lowering("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    call: Call,
    x: Ref,
    weight: Ref | None,
    bias: Ref | None,
    running_mean: Ref,
    running_var: Ref,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Expr | None]:
    batch = _Batch(call, x, eps)
    if not training:
        raise Decline
    return [
        *batch.trained(weight, bias),
        batch.updated(3, running_mean, momentum, 0),
        batch.updated(4, running_var, momentum, 1),
    ]


@lowering("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    call: Call,
    x: Ref,
    weight: Ref | None,
    bias: Ref | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Expr | None]:
    return _Batch(call, x, eps).trained(weight, bias)


@lowering("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    call: Call,
    x: Ref,
    weight: Ref | None,
    bias: Ref | None,
    running_mean: Ref,
    running_var: Ref,
    momentum: float,
    eps: float,
) -> list[Expr | None]:
    return [_Batch(call, x, eps).evaluated(weight, bias, running_mean, running_var), None, None]


@lowering("aten.native_batch_norm.default", "aten._native_batch_norm_legit.default")
def native_batch_norm(
    call: Call,
    x: Ref,
    weight: Ref | None,
    bias: Ref | None,
    running_mean: Ref | None,
    running_var: Ref | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Expr | None]:
    batch = _Batch(call, x, eps)
    if training:
        # With running statistics the op writes to them, although its schema does not say so; the library does
        # that.
        if running_mean is not None or running_var is not None:
            raise Decline
        return batch.trained(weight, bias)
    if running_mean is None or running_var is None:
        raise Decline
    return [batch.evaluated(weight, bias, running_mean, running_var), None, None]
