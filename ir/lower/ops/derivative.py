"""Derivatives of elementwise functions: autograd's ops, each with the formula of eager's kernel.

The first operand is the gradient of the function's result.  Eager's CPU kernels treat NaN in different ways;
the formulas here do what the vectorized kernels do.
"""

from __future__ import annotations

import math

from frameloom.ir import index
from frameloom.ir.lower.expr import (
    Expr,
    Number,
    absolute,
    erf,
    exp,
    log1p,
    maximum,
    share_of,
    tanh,
    where,
)
from frameloom.ir.lower.ops.copies import shifted
from frameloom.ir.lower.ops.loss import MEAN
from frameloom.ir.lower.promote import common_dtype, operand, pointwise
from frameloom.ir.lower.table import Call, Decline, Ref, dimension, lowering, read
from frameloom.ir.ops import Op
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import compare


def _stored(value: Expr, call: Call) -> Expr:
    """Rounds `value` to the dtype of the result, as eager does after this step."""
    return value.cast(call.dtype).wide()


def _rounded_on_gpu(value: Expr, call: Call) -> Expr:
    """Rounds `value` on a GPU: CUDA's kernels of some derivatives compute in the dtype of the tensors."""
    return _stored(value, call) if is_cuda(call.device) else value


# --- activations


@pointwise("aten.threshold_backward.default")
def threshold_backward(grad: Expr, x: Expr, limit: Number) -> Expr:
    return where(x <= x.constant(limit), 0.0, grad)


@pointwise("aten.hardtanh_backward.default", by_device=True)
def hardtanh_backward(grad: Expr, x: Expr, low: Number, high: Number, on_gpu: bool) -> Expr:
    if on_gpu:
        return where((x <= low) | (x >= high), 0.0, grad)
    return where((x > low) & (x < high), grad, 0.0)


@pointwise("aten.gelu_backward.default")
def gelu_backward(grad: Expr, x: Expr, approximate: str) -> Expr:
    if approximate == "tanh":
        beta = math.sqrt(2) * (2 / math.sqrt(math.pi)) * 0.5
        square = x * x
        inner = tanh(beta * (x + 0.044715 * (square * x)))
        left, right = 0.5 * x, 1 + inner
        slope = beta * (1 + 3 * 0.044715 * square)
        return grad * (0.5 * right + left * (1 - inner * inner) * slope)
    density = (2 / math.sqrt(math.pi)) * math.sqrt(0.5) * 0.5 * exp(x * x * -0.5)
    return grad * (0.5 * (1 + erf(x * math.sqrt(0.5))) + x * density)


@pointwise("aten.silu_backward.default")
def silu_backward(grad: Expr, x: Expr) -> Expr:
    s = 1 / (1 + exp(-x))
    return grad * s * (1 + x * (1 - s))


@pointwise("aten.mish_backward.default")
def mish_backward(grad: Expr, x: Expr) -> Expr:
    s = 1 / (1 + exp(-x))
    t = tanh(log1p(exp(x)))
    return grad * (t + x * s * (1 - t * t))


@pointwise("aten.hardsigmoid_backward.default")
def hardsigmoid_backward(grad: Expr, x: Expr) -> Expr:
    one_sixth = 11184811 / 2**26  # ATen rounds it to float32, whatever the dtype
    return where((x > -3) & (x < 3), grad * one_sixth, 0.0)


@pointwise("aten.hardswish_backward.default", by_device=True)
def hardswish_backward(grad: Expr, x: Expr, on_gpu: bool) -> Expr:
    middle = grad * (x / 3 + 0.5)
    rest = where(x < 3, middle, grad) if on_gpu else where(x >= 3, grad, middle)
    return where(x <= -3, 0.0, rest)


@pointwise("aten.elu_backward.default", by_device=True)
def elu_backward(
    grad: Expr, alpha: Number, scale: Number, input_scale: Number, is_result: bool, x: Expr,
    on_gpu: bool,
) -> Expr:  # fmt: skip
    lower = x.constant(alpha * scale)
    upper, factor = x.constant(scale), x.constant(input_scale)
    if is_result:
        negative = grad * factor * (x + lower)
    else:
        negative = grad * factor * lower * exp(x * factor)
    if on_gpu:
        return where(x <= 0, negative, grad * upper)
    return where(x > 0, grad * upper, negative)


@pointwise("aten.leaky_relu_backward.default")
def leaky_relu_backward(grad: Expr, x: Expr, slope: Number, is_result: bool) -> Expr:
    return where(x > 0, grad, grad * grad.constant(slope))


@pointwise("aten._prelu_kernel_backward.default")
def prelu_backward(grad: Expr, x: Expr, weight: Expr) -> list[Expr]:
    return [where(x > 0, grad, weight * grad), where(x > 0, 0.0, x * grad)]


@pointwise(
    "aten.hardshrink_backward.default", "aten.softshrink_backward.default", by_device=True,
    rounded="lambd",
)  # fmt: skip
def shrink_backward(grad: Expr, x: Expr, limit: Number, on_gpu: bool) -> Expr:
    low, high = x.constant(-limit), x.constant(limit)
    if on_gpu:
        return where((x >= low) & (x <= high), 0.0, grad)
    return where((x < low) | (x > high), grad, 0.0)


@pointwise("aten.softplus_backward.default")
def softplus_backward(grad: Expr, x: Expr, beta: Number, limit: Number) -> Expr:
    scaled = x * x.constant(beta)
    z = exp(scaled)
    return where(scaled > x.constant(limit), grad, grad * z / (z + 1))


@lowering("aten.log_sigmoid_backward.default")
def log_sigmoid_backward(call: Call, grad: Ref, x: Ref, scratch: Ref) -> Expr:
    at = call.at()
    dy, value = read(grad, at).wide(), read(x, at).wide()
    z = exp(-absolute(value)) if is_cuda(call.device) else read(scratch, at).wide()
    share = z / (1 + z)
    return where(value < 0, 1 - share, share) * dy


@lowering("aten.sigmoid_backward.default", "aten.tanh_backward.default")
def of_result_backward(call: Call, grad: Ref, y: Ref) -> Expr:
    common = common_dtype([grad, y])
    dy, value = operand(grad, call, common), operand(y, call, common)
    if "tanh" in call.target:
        return dy * _rounded_on_gpu(1 - _rounded_on_gpu(value * value, call), call)
    return _rounded_on_gpu(dy * _rounded_on_gpu(1 - value, call), call) * value


@pointwise("aten.logit_backward.default", by_device=True)
def logit_backward(grad: Expr, x: Expr, eps: Number | None, on_gpu: bool) -> Expr:
    clamped = eps is not None and eps >= 0
    low, high = (float(eps), 1.0 - float(eps)) if eps is not None and clamped else (0.0, 1.0)
    instead, slope = 0.0 if clamped else math.nan, grad / (x * (1 - x))
    if on_gpu:
        return where((x < low) | (x > high), instead, slope)
    return where((x >= low) & (x <= high), slope, instead)


@lowering("aten.glu_backward.default")
def glu_backward(call: Call, grad: Ref, x: Ref, dim: int) -> Expr:
    dim = dimension(dim, x.ndim)
    half = x.shape[dim] // 2
    if x.dtype is None or not x.dtype.is_float or half == 0 or x.shape[dim] == 1:
        raise Decline
    at = call.at()
    is_first = compare(Op.LT, at[dim], index.index(half))
    inner = index.mod(at[dim], half)
    here = [*at[:dim], inner, *at[dim + 1 :]]
    dy, value = read(grad, here).wide(), read(x, here).wide()
    gate = read(x, shifted(here, dim, half)).wide()
    s = 1 / (1 + exp(-gate))
    if not is_cuda(call.device):
        s = _stored(s, call)
    return where(Expr(is_first), s * dy, (1 - s) * s * dy * value)


@pointwise("aten.native_dropout_backward.default")
def dropout_backward(grad: Expr, mask: Expr, scale: float) -> Expr:
    return grad * mask * scale


# --- losses


def _share(call: Call, grad: Ref, operands: list[Ref]) -> tuple[Expr, ...]:
    """Returns the gradient (one number, if the loss was reduced) and the operands at the call's position.
    Declines 16-bit floats on a GPU, where CUDA's kernels of losses round every step."""
    if call.dtype.is_half and is_cuda(call.device):
        raise Decline
    common = common_dtype([grad, *operands])
    if not common.is_float:
        raise Decline
    return tuple(operand(x, call, common) for x in (grad, *operands))


def _scale(x: Ref, reduction: int, like: Expr) -> Expr | float:
    return share_of(x.numel, like) if reduction == MEAN and x.numel else 1.0


@lowering("aten.mse_loss_backward.default")
def mse_loss_backward(call: Call, grad: Ref, x: Ref, target: Ref, reduction: int) -> Expr:
    dy, a, b = _share(call, grad, [x, target])
    return 2.0 * _scale(x, reduction, dy) * (a - b) * dy


def _clipped(z: Expr, limit: float, below: Expr, inner: Expr, above: Expr) -> Expr:
    return where(z <= -limit, below, where(z >= limit, above, inner))


@lowering("aten.smooth_l1_loss_backward.default")
def smooth_l1_loss_backward(
    call: Call, grad: Ref, x: Ref, target: Ref, reduction: int, beta: float
) -> Expr:
    dy, a, b = _share(call, grad, [x, target])
    scale, z = _scale(x, reduction, dy), a - b
    inner = scale * z * dy / beta if beta > 0 else dy
    return _clipped(z, beta, -scale * dy, inner, scale * dy)


@lowering("aten.huber_loss_backward.default")
def huber_loss_backward(
    call: Call, grad: Ref, x: Ref, target: Ref, reduction: int, delta: float
) -> Expr:
    dy, a, b = _share(call, grad, [x, target])
    scale, z = _scale(x, reduction, dy), a - b
    return _clipped(z, delta, -scale * dy * delta, scale * z * dy, scale * dy * delta)


@lowering("aten.binary_cross_entropy_backward.default")
def binary_cross_entropy_backward(
    call: Call, grad: Ref, x: Ref, target: Ref, weight: Ref | None, reduction: int
) -> Expr:
    if weight is not None or call.dtype.is_half:
        raise Decline
    dy, p, t = _share(call, grad, [x, target])
    gradient = dy * (p - t) / maximum((1 - p) * p, 1e-12)
    return gradient / x.numel if reduction == MEAN else gradient
