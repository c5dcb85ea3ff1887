"""Rules for conditions and selections."""

from __future__ import annotations

from frameloom.ir.cases import OPPOSITE
from frameloom.ir.node import Node, const, unary, where
from frameloom.ir.ops import Op
from frameloom.ir.rewrite import Rule, any_node, bools, exactly, of

x, y, p, q = any_node("x"), any_node("y"), any_node("p"), any_node("q")


def _opposite(p: Node, x: Node) -> Node | None:
    # NaN makes both `<` and `>=` false.
    if x.dtype.is_float and p.op not in (Op.EQ, Op.NE):
        return None
    return Node(OPPOSITE[p.op], p.dtype, p.srcs)


SELECTION_RULES = (
    # not not x -> x
    Rule(of(Op.NOT, of(Op.NOT, x)), lambda x: x),
    # not (x < y) -> x >= y, for integers; not (x == y) -> x != y
    *(Rule(of(Op.NOT, of(op, x, y, name="p")), lambda p, x, y: _opposite(p, x)) for op in OPPOSITE),
    # where(p, x, x) -> x
    Rule(of(Op.WHERE, p, x, x), lambda p, x: x),
    # where(true, x, y) -> x
    Rule(of(Op.WHERE, exactly(True), x, y), lambda x, y: x),
    # where(false, x, y) -> y
    Rule(of(Op.WHERE, exactly(False), x, y), lambda x, y: y),
    # where(not p, x, y) -> where(p, y, x)
    Rule(of(Op.WHERE, of(Op.NOT, p), x, y), lambda p, x, y: where(p, y, x)),
    # where(p, true, false) -> p
    Rule(of(Op.WHERE, p, exactly(True), exactly(False)), lambda p: p, bools),
    # where(p, false, true) -> not p
    Rule(of(Op.WHERE, p, exactly(False), exactly(True)), lambda p: unary(Op.NOT, p), bools),
    # p and true -> p
    Rule(of(Op.AND, p, exactly(True)), lambda p: p, bools),
    # p and false -> false
    Rule(of(Op.AND, p, exactly(False)), lambda p: const(False, p.dtype), bools),
    # p or false -> p
    Rule(of(Op.OR, p, exactly(False)), lambda p: p, bools),
    # p or true -> true
    Rule(of(Op.OR, p, exactly(True)), lambda p: const(True, p.dtype), bools),
    # x and x -> x
    Rule(of(Op.AND, x, x), lambda x: x),
    # x or x -> x
    Rule(of(Op.OR, x, x), lambda x: x),
)
