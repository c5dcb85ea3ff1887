"""Readable formulas over nodes: with Python operators and numbers, `x * sigmoid(x)` builds Nodes.

An Expr is a Node with operators; a number takes the dtype of its partner.  Nothing is simplified here (rules
do that), and no dtype is promoted: both sides of an operator have one dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from frameloom.ir import node as ir
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node
from frameloom.ir.ops import ON_BOOLS, Op
from frameloom.ir.symbolic.expr import Int, Size

Number = bool | int | float
# Order of bools, as (op, the side that is negated): in a vector, bools are masks, and true is not greater
# than false.
_ORDER_OF_BOOL = {
    Op.LT: (Op.AND, 0), Op.GT: (Op.AND, 1), Op.LE: (Op.OR, 0), Op.GE: (Op.OR, 1),
}  # fmt: skip


def function(op: Op) -> Callable[[Expr], Expr]:
    """Returns the function of one operand that applies `op`."""
    return lambda x: x.unary(op)


def operator(op: Op) -> Callable[[Expr, Expr | Number], Expr]:
    """Returns the function of two operands that applies `op`."""
    return lambda a, b: a.binary(op, b)


def _reflected(op: Op) -> Callable[[Expr, Number], Expr]:
    return lambda b, a: b.constant(a).binary(op, b)


class Expr:
    """A node for use in formulas."""

    __slots__ = ("node",)
    is_number = False  # a Python number that is known only at run time (numbers.py)

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    def cast(self, dtype: DType) -> Expr:
        return Expr(ir.cast(dtype, self.node))

    def wide(self) -> Expr:
        """Casts 16-bit floats to F32; other dtypes stay."""
        return self.cast(DType.F32) if self.dtype.is_half else self

    def constant(self, value: Number | Expr) -> Expr:
        """Returns `value` in this expression's dtype."""
        if isinstance(value, Expr):
            return (value.cast(DType.F32) if self.dtype.is_half else value).cast(self.dtype)
        return Expr(ir.const(value, self.dtype))

    def binary(self, op: Op, other: Expr | Number) -> Expr:
        if not isinstance(other, Expr) or other.is_number:
            other = self.constant(other)
        if self.dtype is DType.BOOL:
            op = ON_BOOLS.get(op, op)
            if op in _ORDER_OF_BOOL:
                op, negated = _ORDER_OF_BOOL[op]
                self, other = (~self, other) if negated == 0 else (self, ~other)
        return Expr(ir.binary(op, self.node, other.node))

    def unary(self, op: Op) -> Expr:
        return Expr(ir.unary(op, self.node))

    __add__, __radd__ = operator(Op.ADD), _reflected(Op.ADD)
    __sub__, __rsub__ = operator(Op.SUB), _reflected(Op.SUB)
    __mul__, __rmul__ = operator(Op.MUL), _reflected(Op.MUL)
    __truediv__, __rtruediv__ = operator(Op.DIV), _reflected(Op.DIV)
    __and__, __or__, __xor__ = operator(Op.AND), operator(Op.OR), operator(Op.XOR)
    __lt__, __le__ = operator(Op.LT), operator(Op.LE)
    __gt__, __ge__ = operator(Op.GT), operator(Op.GE)
    eq, ne = operator(Op.EQ), operator(Op.NE)
    __neg__, __invert__ = function(Op.NEG), function(Op.NOT)


absolute, sign, sqrt, rsqrt, reciprocal = map(
    function, (Op.ABS, Op.SIGN, Op.SQRT, Op.RSQRT, Op.RECIP)
)
floor, ceil, trunc, rint = map(function, (Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND))
exp, exp2, expm1 = map(function, (Op.EXP, Op.EXP2, Op.EXPM1))
log, log2, log1p = map(function, (Op.LOG, Op.LOG2, Op.LOG1P))
tanh, erf, sigmoid = map(function, (Op.TANH, Op.ERF, Op.SIGMOID))
isnan, isinf = map(function, (Op.ISNAN, Op.ISINF))


def share_of(count: Int, like: Expr) -> Expr | float:
    """Returns 1 / count, for a formula with `like`."""
    share: Expr | float = (like.constant(1) if isinstance(count, Size) else 1.0) / count
    return share


def total(values: Iterable[Expr]) -> Expr:
    """Returns the sum of some values, added one after the other."""
    return functools.reduce(lambda a, b: a + b, values)


def maximum(a: Expr, b: Expr | Number) -> Expr:
    return a.binary(Op.MAX, b)


def minimum(a: Expr, b: Expr | Number) -> Expr:
    return a.binary(Op.MIN, b)


def where(condition: Expr, a: Expr | Number, b: Expr | Number) -> Expr:
    if not isinstance(a, Expr):
        assert isinstance(b, Expr)
        a = b.constant(a)
    if not isinstance(b, Expr):
        b = a.constant(b)
    return Expr(ir.where(condition.node, a.node, b.node))
