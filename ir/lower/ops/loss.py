"""Losses: negative log likelihood with its class index, and elementwise losses with their reduction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

from frameloom.ir.dtype import DType
from frameloom.ir.index import index
from frameloom.ir.lower.expr import Expr, absolute, exp, log, log1p, maximum, minimum, where
from frameloom.ir.lower.ops.gather import data_index, inside
from frameloom.ir.lower.ops.reduce import ReductionSlice, reduction_slice
from frameloom.ir.lower.promote import common_dtype, wide_dtype
from frameloom.ir.lower.table import Call, Decline, Ref, broadcasts, lowering, positions, read
from frameloom.ir.node import Node, const
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import conjunction

NONE, MEAN, SUM = 0, 1, 2


def _reduced(shape: Sequence[int], reduction: int) -> ReductionSlice:
    """Returns the slice of the losses (of this shape) that are reduced to the result: all or one."""
    if reduction == NONE:
        return ReductionSlice(positions(shape), (), 1)
    return reduction_slice(shape, range(len(shape)), [], keepdim=False)


@lowering("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss(
    call: Call, x: Ref, target: Ref, weight: Ref | None, reduction: int, ignore_index: int
) -> list[Expr | None]:
    if x.dtype is None or 0 in x.shape or target.shape != x.shape[:1] * (x.ndim > 1) + x.shape[2:]:
        raise Decline
    classes = x.shape[0 if x.ndim == 1 else 1]
    over = _reduced(target.shape, reduction)
    chosen = data_index(target, over.at)
    mask = inside(chosen, classes)
    allowed = Expr(mask) | chosen.eq(ignore_index)
    call.check(allowed, "IndexError", "Target is out of bounds.")
    valid = conjunction(chosen.ne(ignore_index).node, mask)
    at: list[Node] = [chosen.node] if x.ndim == 1 else [*over.at[:1], chosen.node, *over.at[1:]]
    loss = -read(x, at, valid).wide()
    scale = Expr(valid) if weight is None else read(weight, [chosen.node], valid)
    scale = scale.cast(loss.dtype)
    if weight is not None:
        loss = loss * scale
    zero = Expr(const(0, loss.dtype))
    loss = where(Expr(valid), loss, zero)
    if reduction == NONE:
        return [loss, zero]
    total, weights = over.fold("sum", loss), over.fold("sum", scale)
    return [total / weights if reduction == MEAN else total, weights]


def _elementwise(
    call: Call,
    x: Ref,
    target: Ref,
    reduction: int,
    formula: Callable[..., Expr],
    *weights: Ref | None,
) -> Expr:
    """Returns the losses, reduced.  `formula` gets the two operands and then the weights, which have the
    shape of the result or are broadcast to it."""
    tensors = [x, target, *(w for w in weights if w is not None)]
    common = common_dtype([x, target])
    shape = call.shape if reduction == NONE else x.shape
    if not common.is_float or (reduction != NONE and x.shape != target.shape):
        raise Decline
    if len(tensors) > 2 and (x.shape != target.shape or x.shape != shape):
        raise Decline  # eager multiplies in place
    if any(w.torch_dtype != x.torch_dtype or not broadcasts(w.shape, shape) for w in tensors[2:]):
        raise Decline
    over = _reduced(shape, reduction)
    wide = wide_dtype(common)
    loss = formula(*(t and read(t, over.at).cast(wide) for t in (x, target, *weights)))
    if reduction == NONE:
        return loss
    if common.is_half:
        # Eager stores the losses in the common dtype before it reduces them.
        loss = loss.cast(common).wide()
    return over.fold("sum", loss) if reduction == SUM else over.mean(loss)


@lowering("aten.mse_loss.default")
def mse_loss(call: Call, x: Ref, target: Ref, reduction: int) -> Expr:
    common = common_dtype([x, target])

    def formula(a: Expr, b: Expr) -> Expr:
        difference = a - b
        if common.is_half and not is_cuda(call.device):
            difference = difference.cast(common).wide()  # eager rounds at every step
        return difference * difference

    return _elementwise(call, x, target, reduction, formula)


def _rounds_at_every_step(call: Call, x: Ref, target: Ref) -> bool:
    """Whether eager's kernel may round every step: on the CPU, it does for one 16-bit type and not for the
    other."""
    return common_dtype([x, target]).is_half and not is_cuda(call.device)


@lowering("aten.smooth_l1_loss.default")
def smooth_l1_loss(call: Call, x: Ref, target: Ref, reduction: int, beta: float) -> Expr:
    if not beta >= 0 or _rounds_at_every_step(call, x, target):
        raise Decline  # the library op refuses a negative beta

    def formula(a: Expr, b: Expr) -> Expr:
        z = absolute(a - b)
        return where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta)

    return _elementwise(call, x, target, reduction, formula)


@lowering("aten.huber_loss.default")
def huber_loss(call: Call, x: Ref, target: Ref, reduction: int, delta: float) -> Expr:
    if not delta > 0 or x.dtype is not target.dtype or _rounds_at_every_step(call, x, target):
        raise Decline  # the library op refuses other deltas, and stores the losses in x's dtype

    def formula(a: Expr, b: Expr) -> Expr:
        z = absolute(a - b)
        return where(z < delta, 0.5 * z * z, delta * (z - 0.5 * delta))

    return _elementwise(call, x, target, reduction, formula)


@functools.cache
def _targets_are_checked() -> bool:
    """Whether this version of PyTorch checks the targets of binary_cross_entropy, too."""
    try:
        torch.ops.aten.binary_cross_entropy(torch.tensor([0.5]), torch.tensor([2.0]))
    except RuntimeError:
        return True
    return False


@lowering("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    call: Call, x: Ref, target: Ref, weight: Ref | None, reduction: int
) -> Expr:
    if 0 in x.shape:
        raise Decline
    p = read(x, positions(x.shape)).wide()
    message = "all elements of input should be between 0 and 1"
    call.check((p >= 0) & (p <= 1), "RuntimeError", message)
    if _targets_are_checked():
        t = read(target, positions(target.shape)).wide()
        message = "all elements of target should be between 0 and 1"
        call.check((t >= 0) & (t <= 1), "RuntimeError", message)

    def formula(p: Expr, t: Expr, w: Expr | None) -> Expr:
        loss = (t - 1) * maximum(log(1 - p), -100) - t * maximum(log(p), -100)
        return loss if w is None else loss * w

    return _elementwise(call, x, target, reduction, formula, weight)


@lowering("aten.binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    call: Call, x: Ref, target: Ref, weight: Ref | None, pos_weight: Ref | None, reduction: int
) -> Expr:
    def formula(a: Expr, t: Expr, w: Expr | None, positive: Expr | None) -> Expr:
        log_sigmoid = minimum(a, 0) - log1p(exp(-absolute(a)))
        if positive is not None:
            log_sigmoid = ((positive - 1) * t + 1) * log_sigmoid
        loss = (1 - t) * a - log_sigmoid
        return loss if w is None else loss * w

    return _elementwise(call, x, target, reduction, formula, weight, pos_weight)


@lowering("aten.soft_margin_loss.default")
def soft_margin_loss(call: Call, x: Ref, target: Ref, reduction: int) -> Expr:
    if x.dtype is None or x.dtype is not target.dtype or x.shape != target.shape:
        raise Decline
    half = x.dtype if x.dtype.is_half else None

    def stored(value: Expr) -> Expr:
        """Rounds 16-bit floats after this step, as eager does."""
        return value if half is None else value.cast(half).wide()

    def formula(a: Expr, t: Expr) -> Expr:
        return log1p(stored(exp(stored(-t * a))))

    return _elementwise(call, x, target, reduction, formula)


@lowering("aten.multi_margin_loss.default")
def multi_margin_loss(
    call: Call, x: Ref, target: Ref, p: float, margin: float, weight: Ref | None, reduction: int
) -> Expr:
    if (
        is_cuda(call.device)
        or x.ndim not in (1, 2)
        or 0 in x.shape
        or target.dtype is not DType.I64
    ):
        raise Decline
    if weight is not None and (weight.dtype is not x.dtype or weight.shape != x.shape[-1:]):
        raise Decline
    classes = x.shape[-1]
    over = _reduced(x.shape[:-1], reduction)
    frames = over.at
    # A single frame and a single class may each have a dimension or none.
    chosen = data_index(target, frames if target.ndim == len(frames) else [index(0)] * target.ndim)
    mask = inside(chosen, classes)
    call.check(Expr(mask), "RuntimeError", "target out of range")
    each = reduction_slice(x.shape, [x.ndim - 1], frames, keepdim=False)
    distance = margin - read(x, [*frames, chosen.node], mask) + read(x, each.at)
    loss = distance if p == 1 else distance * distance
    if weight is not None:
        loss = loss * read(weight, [chosen.node], mask)
    counted = (distance > 0) & Expr(each.at[-1]).ne(chosen)
    loss = each.fold("sum", where(counted, loss, 0)) / classes
    if reduction == NONE:
        return loss
    total = over.fold("sum", loss.cast(DType.F64))
    return total if reduction == SUM else total / over.count
