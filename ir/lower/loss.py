"""Losses: negative log likelihood with its class index, and the elementwise ones with their reduction."""

from __future__ import annotations

from collections.abc import Callable

from frameloom.ir.lower.expr import Expr, absolute, exp, log, log1p, maximum, minimum, where
from frameloom.ir.lower.gather import data_index, inside
from frameloom.ir.lower.promote import common_dtype, wide_dtype
from frameloom.ir.lower.reduce import Line, line
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, positions, read
from frameloom.ir.node import Node, const
from frameloom.ir.substitute import conjunction

NONE, MEAN, SUM = 0, 1, 2


@lowering("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss(
    call: Call, x: Ref, target: Ref, weight: Ref | None, reduction: int, ignore_index: int
) -> list[Expr | None]:
    if x.dtype is None or 0 in x.shape or target.shape != x.shape[:1] * (x.ndim > 1) + x.shape[2:]:
        raise Decline
    classes = x.shape[0 if x.ndim == 1 else 1]
    results = []
    for result in (0, 1):
        if reduction == NONE:
            over = Line(call.at(0), (), 1)
        else:
            over = line(target.shape, range(target.ndim), [], keepdim=False)
        chosen = data_index(target, over.at)
        counted = chosen.ne(ignore_index)
        mask = inside(chosen, classes)
        if result == 0:
            allowed = Expr(mask) | chosen.eq(ignore_index)
            call.check(allowed, "IndexError", "Target is out of bounds.")
        kept = conjunction(counted.node, mask)
        at: list[Node] = [chosen.node] if x.ndim == 1 else [*over.at[:1], chosen.node, *over.at[1:]]
        log_probability = read(x, at, kept).wide()
        scale = (
            read(weight, [chosen.node], kept).cast(log_probability.dtype)
            if weight is not None
            else Expr(kept).cast(log_probability.dtype)
        )
        loss = -log_probability * scale if weight is not None else -log_probability
        zero = Expr(const(0, log_probability.dtype))
        if result == 0:
            total = (
                over.fold("sum", where(Expr(kept), loss, zero))
                if reduction
                else where(Expr(kept), loss, zero)
            )
            results.append(total / over.fold("sum", scale) if reduction == MEAN else total)
        else:
            results.append(over.fold("sum", scale) if reduction else zero)
    return list(results)


Formula = Callable[[Expr, Expr], Expr]


def _elementwise(call: Call, x: Ref, target: Ref, reduction: int, formula: Formula) -> Expr:
    common = common_dtype([x, target])
    if not common.is_float or (reduction != NONE and x.shape != target.shape):
        raise Decline
    over = (
        Line(call.at(), (), 1)
        if reduction == NONE
        else line(x.shape, range(x.ndim), [], keepdim=False)
    )
    wide = wide_dtype(common)
    loss = formula(read(x, over.at).cast(wide), read(target, over.at).cast(wide))
    if reduction == NONE:
        return loss
    if common.is_half:
        # Eager stores the losses before it reduces them.
        loss = loss.cast(common).wide()
    return over.fold("sum", loss) if reduction == SUM else over.mean(loss)


@lowering("aten.mse_loss.default")
def mse_loss(call: Call, x: Ref, target: Ref, reduction: int) -> Expr:
    return _elementwise(call, x, target, reduction, lambda a, b: (a - b) * (a - b))


@lowering("aten.smooth_l1_loss.default")
def smooth_l1_loss(call: Call, x: Ref, target: Ref, reduction: int, beta: float) -> Expr:
    def formula(a: Expr, b: Expr) -> Expr:
        z = absolute(a - b)
        return where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta)

    return _elementwise(call, x, target, reduction, formula)


@lowering("aten.huber_loss.default")
def huber_loss(call: Call, x: Ref, target: Ref, reduction: int, delta: float) -> Expr:
    def formula(a: Expr, b: Expr) -> Expr:
        z = absolute(a - b)
        return where(z < delta, 0.5 * z * z, delta * (z - 0.5 * delta))

    return _elementwise(call, x, target, reduction, formula)


@lowering("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    call: Call, x: Ref, target: Ref, weight: Ref | None, reduction: int
) -> Expr:
    if weight is not None or 0 in x.shape:
        raise Decline
    p = read(x, positions(x.shape)).wide()
    message = "all elements of input should be between 0 and 1"
    call.check((p >= 0) & (p <= 1), "RuntimeError", message)

    def formula(p: Expr, t: Expr) -> Expr:
        return (t - 1) * maximum(log(1 - p), -100) - t * maximum(log(p), -100)

    return _elementwise(call, x, target, reduction, formula)


@lowering("aten.binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    call: Call, x: Ref, target: Ref, weight: Ref | None, pos_weight: Ref | None, reduction: int
) -> Expr:
    if weight is not None or pos_weight is not None:
        raise Decline
    return _elementwise(
        call,
        x,
        target,
        reduction,
        lambda a, t: (1 - t) * a - (minimum(a, 0) - log1p(exp(-absolute(a)))),
    )
