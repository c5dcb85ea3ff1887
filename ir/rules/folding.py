"""Operations on constants, computed now by the reference interpreter: what eager would compute."""

from __future__ import annotations

from frameloom.ir.node import Node
from frameloom.ir.ops import BINARY, UNARY, Op
from frameloom.ir.rewrite import Rule, constant, of


def _folded(whole: Node, **_: Node) -> Node:
    from frameloom.ir.interp import compute

    return Node(Op.CONST, whole.dtype, (), compute(whole, {}).item())


def _same_everywhere(whole: Node, c: Node) -> Node | None:
    return c if whole.arg.kind in ("any", "all", "max", "min") else None


c, d = constant("c"), constant("d")

FOLDING_RULES = (
    # any(c) -> c, and likewise all, max, min
    Rule(of(Op.REDUCE, c, name="whole"), _same_everywhere),
    # op(c) -> its value
    *(
        Rule(of(op, c, name="whole"), _folded)
        for op in sorted(UNARY | {Op.CAST}, key=lambda op: op.value)
    ),
    # op(c, d) -> its value
    *(Rule(of(op, c, d, name="whole"), _folded) for op in sorted(BINARY, key=lambda op: op.value)),
)
