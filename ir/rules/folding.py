"""Operations on constants, computed now by the reference interpreter: what eager would compute."""

from __future__ import annotations

from frameloom.ir.node import Node, where
from frameloom.ir.ops import BINARY, COMPARES, UNARY, Op
from frameloom.ir.rewrite import Rule, any_node, constant, of
from frameloom.ir.size import Size


def _folded(whole: Node, **_: Node) -> Node | None:
    if any(isinstance(s.arg, Size) for s in whole.srcs):
        return None  # known at run time
    from frameloom.ir.interp import compute

    return Node(Op.CONST, whole.dtype, (), compute(whole, {}).item())


def _same_everywhere(whole: Node, c: Node) -> Node | None:
    if whole.arg.kind == "sum":
        return c if whole.dtype.is_int and not c.arg else None
    return c if whole.arg.kind in ("any", "all", "max", "min") else None


def _chosen(whole: Node, p: Node, c: Node, d: Node, e: Node | None = None) -> Node | None:
    a, b = (_folded(Node(whole.op, whole.dtype, (v,) if e is None else (v, e))) for v in (c, d))
    return None if a is None or b is None else where(p, a, b)


c, d, e, p = constant("c"), constant("d"), constant("e"), any_node("p")

FOLDING_RULES = (
    # any(c) -> c, and likewise all, max, min; sum(0) -> 0 of integers
    Rule(of(Op.REDUCE, c, name="whole"), _same_everywhere),
    # op(c) -> its value
    *(
        Rule(of(op, c, name="whole"), _folded)
        for op in sorted(UNARY | {Op.CAST}, key=lambda op: op.value)
    ),
    # op(c, d) -> its value
    *(Rule(of(op, c, d, name="whole"), _folded) for op in sorted(BINARY, key=lambda op: op.value)),
    # cast(where(p, c, d)) -> where(p, cast(c), cast(d))
    Rule(of(Op.CAST, of(Op.WHERE, p, c, d), name="whole"), _chosen),
    # where(p, c, d) < e -> where(p, c < e, d < e), and the other comparisons
    *(
        Rule(of(op, of(Op.WHERE, p, c, d), e, name="whole"), _chosen)
        for op in sorted(COMPARES, key=lambda op: op.value)
    ),
)
