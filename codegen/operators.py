"""The operators that C++ and Triton spell alike, and the divisions that they compute alike."""

from __future__ import annotations

from frameloom.ir.index import bounds
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.symbolic.compare import at_most, surely_positive

INFIX = {
    Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/", Op.AND: "&", Op.OR: "|", Op.XOR: "^", Op.SHL: "<<",
    Op.SHR: ">>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">=", Op.EQ: "==", Op.NE: "!=",
}  # fmt: skip


def is_plain_division(n: Node) -> bool:
    """Whether `n` is a FLOORDIV or MOD that is the same if the division rounds to zero: a number that is not
    negative, by a positive constant."""
    if n.op not in (Op.FLOORDIV, Op.MOD) or n.srcs[1].op is not Op.CONST:
        return False
    known = bounds(n.srcs[0])
    return known is not None and at_most(0, known[0]) and surely_positive(n.srcs[1].arg)
