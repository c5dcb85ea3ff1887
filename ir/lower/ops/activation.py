"""Activation functions, each with the formula of eager's kernel, so that it rounds in the same way."""

from __future__ import annotations

import math

from frameloom.ir.dtype import single
from frameloom.ir.lower.expr import (
    Expr,
    Number,
    absolute,
    erf,
    exp,
    expm1,
    isnan,
    log1p,
    maximum,
    minimum,
    sigmoid,
    tanh,
    where,
)
from frameloom.ir.lower.ops.copies import shifted
from frameloom.ir.lower.promote import pointwise
from frameloom.ir.lower.table import Call, Decline, Ref, dimension, lowering, read


@pointwise("aten.relu.default")
def relu(x: Expr) -> Expr:
    return maximum(x, 0)


@pointwise("aten.hardtanh.default")
def hardtanh(x: Expr, low: Number, high: Number) -> Expr:
    return minimum(maximum(x, low), high)


@pointwise("aten.gelu.default")
def gelu(x: Expr, approximate: str) -> Expr:
    if approximate == "tanh":
        inner = math.sqrt(2) * (2 / math.sqrt(math.pi)) * 0.5 * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + tanh(inner))
    return x * 0.5 * (1 + erf(x * math.sqrt(0.5)))


@pointwise("aten.silu.default")
def silu(x: Expr) -> Expr:
    return x / (1 + exp(-x))


@pointwise("aten.mish.default")
def mish(x: Expr) -> Expr:
    return x * tanh(log1p(exp(x)))


SIXTH_ON_GPU = single(1 / 6)  # also for F64


@pointwise("aten.hardsigmoid.default", by_device=True)
def hardsigmoid(x: Expr, on_gpu: bool) -> Expr:
    value = minimum(maximum(x + 3, 0), 6)
    return value * SIXTH_ON_GPU if on_gpu else value / 6


@pointwise("aten.hardswish.default", by_device=True)
def hardswish(x: Expr, on_gpu: bool) -> Expr:
    value = x * minimum(maximum(x + 3, 0), 6)
    return value * SIXTH_ON_GPU if on_gpu else value / 6


@pointwise("aten.elu.default", rounded="", by_device=True)
def elu(x: Expr, alpha: Number, scale: Number, input_scale: Number, on_gpu: bool) -> Expr:
    below = expm1(x * x.constant(input_scale)) * x.constant(alpha * scale)
    # The two differ at 0, whose sign is visible, and in the result of an infinite alpha there.
    return where(x <= 0 if on_gpu else x < 0, below, x * x.constant(scale))


@pointwise("aten.celu.default", rounded="", by_device=True)
def celu(x: Expr, alpha: Number, on_gpu: bool) -> Expr:
    return elu(x, alpha, 1.0, 1.0 / alpha, on_gpu)


@pointwise("aten.leaky_relu.default")
def leaky_relu(x: Expr, slope: Number) -> Expr:
    return where(x > 0, x, x * x.constant(slope))


@pointwise("aten._prelu_kernel.default")
def prelu(x: Expr, weight: Expr) -> Expr:
    return where(x > 0, x, weight * x)


@pointwise("aten.threshold.default")
def threshold(x: Expr, limit: Number, value: Number) -> Expr:
    return where(x <= x.constant(limit), x.constant(value), x)


@pointwise("aten.hardshrink.default", rounded="lambd")
def hardshrink(x: Expr, limit: Number) -> Expr:
    return where((x >= x.constant(-limit)) & (x <= x.constant(limit)), 0.0, x)


@pointwise("aten.softshrink.default", rounded_on_gpu="lambd")
def softshrink(x: Expr, limit: Number) -> Expr:
    if isinstance(limit, Expr) or not limit >= 0:
        raise Decline  # eager refuses negative ones
    return where(x > limit, x - limit, where(x < -limit, x + limit, where(isnan(x), x, 0.0)))


@pointwise("aten.softplus.default")
def softplus(x: Expr, beta: Number, limit: Number) -> Expr:
    factor = x.constant(beta)
    z = x * factor
    return where(z > x.constant(limit), x, log1p(exp(z)) / factor)


@lowering("aten.log_sigmoid_forward.default")
def log_sigmoid(call: Call, x: Ref) -> list[Expr | None]:
    # The second result is scratch memory for the backward of eager's own kernel.
    if call.results[1].shape != (0,):
        v = read(x, call.at(1)).wide()
        scratch: Expr | None = exp(-absolute(v))
    else:
        scratch = None
    v = read(x, call.at()).wide()
    return [minimum(v, 0) - log1p(exp(-absolute(v))), scratch]


@lowering("aten.glu.default")
def glu(call: Call, x: Ref, dim: int) -> Expr:
    dim = dimension(dim, x.ndim)
    if x.dtype is None or not x.dtype.is_float:
        raise Decline
    at = call.at()
    return read(x, at).wide() * sigmoid(read(x, shifted(at, dim, x.shape[dim] // 2)).wide())
