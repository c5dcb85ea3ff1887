"""Constant folding: the reference interpreter computes operations on constants, as eager would on the CPU.

Kernels for other devices fold only operations that have the same result on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from frameloom.ir.interp import compute
from frameloom.ir.node import Node, where
from frameloom.ir.ops import BINARY, COMPARES, TRANSCENDENTAL, UNARY, Op
from frameloom.ir.rewrite import Rule, any_node, constant, of
from frameloom.ir.substitute import fold_reduction
from frameloom.ir.symbolic.expr import Size

Fold = Callable[..., Node | None]


def _folded(whole: Node, **_: Node) -> Node | None:
    if any(isinstance(s.arg, Size) for s in whole.srcs):
        return None  # known at run time
    return Node(Op.CONST, whole.dtype, (), compute(whole, {}).item())


def _folded_on_any_device(whole: Node, **_: Node) -> Node | None:
    """Folds an operation that has the same result on every device."""
    return None if _differs(whole) else _folded(whole)


def _differs(whole: Node) -> bool:
    """Whether devices may compute different results from these constants: functions that they approximate,
    and cases that no standard defines."""
    values = [s.arg for s in whole.srcs]
    if whole.op in TRANSCENDENTAL | {Op.RSQRT}:
        return True
    if whole.op is Op.CAST and whole.dtype.is_int and whole.srcs[0].dtype.is_float:
        held = torch.iinfo(whole.dtype.to_torch())
        return not (math.isfinite(values[0]) and held.min <= math.trunc(values[0]) <= held.max)
    if whole.op in (Op.SHL, Op.SHR):
        return not 0 <= values[1] < whole.dtype.bits
    return whole.op in (Op.MOD, Op.FMOD, Op.FLOORDIV, Op.TRUNCDIV) and not values[1]


def _same_everywhere(whole: Node, c: Node) -> Node | None:
    return fold_reduction(whole.arg.kind, whole.arg.axes, c)


def _chosen(
    whole: Node, p: Node, c: Node, d: Node, e: Node | None = None, fold: Fold = _folded
) -> Node | None:
    a, b = (fold(Node(whole.op, whole.dtype, (v,) if e is None else (v, e))) for v in (c, d))
    return None if a is None or b is None else where(p, a, b)


c, d, e, p = constant("c"), constant("d"), constant("e"), any_node("p")


def _rules(fold: Fold) -> tuple[Rule, ...]:
    return (
        # any(c) -> c, and likewise all, max, min; sum(0) -> 0 of integers
        Rule(of(Op.REDUCE, c, name="whole"), _same_everywhere),
        # op(c) -> its value
        *(
            Rule(of(op, c, name="whole"), fold)
            for op in sorted(UNARY | {Op.CAST}, key=lambda op: op.value)
        ),
        # op(c, d) -> its value
        *(Rule(of(op, c, d, name="whole"), fold) for op in sorted(BINARY, key=lambda op: op.value)),
        # cast(where(p, c, d)) -> where(p, cast(c), cast(d))
        Rule(of(Op.CAST, of(Op.WHERE, p, c, d), name="whole"), partial(_chosen, fold=fold)),
        # where(p, c, d) < e -> where(p, c < e, d < e), and the other comparisons
        *(
            Rule(of(op, of(Op.WHERE, p, c, d), e, name="whole"), partial(_chosen, fold=fold))
            for op in sorted(COMPARES, key=lambda op: op.value)
        ),
    )


FOLDING_RULES = _rules(_folded)
FOLDING_RULES_FOR_ANY_DEVICE = _rules(_folded_on_any_device)
