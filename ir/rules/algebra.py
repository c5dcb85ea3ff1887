"""Arithmetic identities."""

from __future__ import annotations

import math

from frameloom.ir.node import Node, binary, const, unary
from frameloom.ir.ops import Op
from frameloom.ir.rewrite import Rule, any_node, bools, constant, exactly, floats, integers, of

x, y, c, d = any_node("x"), any_node("y"), constant("c"), constant("d")


def _times_reciprocal(x: Node, c: Node) -> Node | None:
    # Only powers of two have an exact reciprocal.
    mantissa, exponent = math.frexp(c.arg) if c.arg and math.isfinite(c.arg) else (0.0, 0)
    if abs(mantissa) != 0.5 or abs(exponent) > 120:
        return None
    return binary(Op.MUL, x, const(1.0 / c.arg, c.dtype))


def _tighter(op: Op, x: Node, c: Node, d: Node) -> Node | None:
    if math.isnan(c.arg) or math.isnan(d.arg) or (c.arg == 0 and d.arg == 0 and c is not d):
        return None
    limit = max(c.arg, d.arg) if op is Op.MAX else min(c.arg, d.arg)
    return binary(op, x, const(limit, c.dtype))


ALGEBRA_RULES = (
    # x * 1 -> x
    Rule(of(Op.MUL, x, exactly(1)), lambda x: x),
    # x / 1 -> x
    Rule(of(Op.DIV, x, exactly(1)), lambda x: x),
    # x / 2**k -> x * 2**-k
    Rule(of(Op.DIV, x, c), _times_reciprocal),
    # x + -0.0 -> x; not +0.0, which turns -0.0 into 0.0
    Rule(of(Op.ADD, x, exactly(-0.0)), lambda x: x, floats),
    # x - 0.0 -> x
    Rule(of(Op.SUB, x, exactly(0.0)), lambda x: x),
    # i + 0 -> i
    Rule(of(Op.ADD, x, exactly(0)), lambda x: x, integers),
    # i * 0 -> 0
    Rule(of(Op.MUL, x, exactly(0)), lambda x: const(0, x.dtype), integers),
    # --x -> x
    Rule(of(Op.NEG, of(Op.NEG, x)), lambda x: x),
    # x + -y -> x - y
    Rule(of(Op.ADD, x, of(Op.NEG, y)), lambda x, y: binary(Op.SUB, x, y), floats),
    # x - -y -> x + y
    Rule(of(Op.SUB, x, of(Op.NEG, y)), lambda x, y: binary(Op.ADD, x, y), floats),
    # -x * -y -> x * y
    Rule(of(Op.MUL, of(Op.NEG, x), of(Op.NEG, y)), lambda x, y: binary(Op.MUL, x, y)),
    # | -x | -> |x|
    Rule(of(Op.ABS, of(Op.NEG, x)), lambda x: unary(Op.ABS, x), floats),
    # ||x|| -> |x|
    Rule(of(Op.ABS, of(Op.ABS, x)), lambda x: unary(Op.ABS, x)),
    # max(x, x) -> x
    Rule(of(Op.MAX, x, x), lambda x: x),
    # min(x, x) -> x
    Rule(of(Op.MIN, x, x), lambda x: x),
    # max(x, -inf) -> x
    Rule(of(Op.MAX, x, exactly(-math.inf)), lambda x: x, floats),
    # min(x, inf) -> x
    Rule(of(Op.MIN, x, exactly(math.inf)), lambda x: x, floats),
    # x < -inf -> false, and the other comparisons that are never true
    *(
        Rule(of(op, *sides, name="whole"), lambda whole, **_: const(False, whole.dtype), bools)
        for limit, above in ((exactly(math.inf), True), (exactly(-math.inf), False))
        for op, sides in [
            (Op.LT, (limit, x) if above else (x, limit)),
            (Op.GT, (x, limit) if above else (limit, x)),
        ]
    ),
    # max(max(x, c), d) -> max(x, max(c, d))
    Rule(of(Op.MAX, of(Op.MAX, x, c), d), lambda x, c, d: _tighter(Op.MAX, x, c, d)),
    # min(min(x, c), d) -> min(x, min(c, d))
    Rule(of(Op.MIN, of(Op.MIN, x, c), d), lambda x, c, d: _tighter(Op.MIN, x, c, d)),
)
