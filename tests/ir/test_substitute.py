"""Axes of nested reductions, where values are put in place of others."""

import random

import pytest

from frameloom.ir.dtype import DType
from frameloom.ir.index import linear
from frameloom.ir.node import Axis, Node, axis, binary, load
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kind
from frameloom.ir.substitute import fold, substitute, topological

EXTENT = 4
SOURCE = Buffer("source", DType.F32, (EXTENT,) * 4, (64, 16, 4, 1), Kind.INPUT)


def value(draw: random.Random, free: list[Axis], depth: int) -> Node:
    """Of up to `depth` reductions in each other, the axes of which stand for any position."""
    kind = draw.choice(["load", "sum", "reduce", "reduce"]) if depth else "load"
    if kind == "load":
        places = [axis(draw.choice(free)) for _ in range(draw.randint(1, 4))]
        return load(SOURCE, linear(places, [64, 16, 4, 1][-len(places) :]))
    if kind == "sum":
        return binary(Op.ADD, value(draw, free, depth - 1), value(draw, free, depth - 1))
    unused = [a for a in (Axis(f"r{k}x{EXTENT}", EXTENT) for k in range(12)) if a not in free]
    own = draw.sample(unused, draw.randint(1, 2))  # named as those of another reduction may be
    inside = value(draw, [*free, *own], depth - 1)
    some = draw.sample(free, draw.randint(0, len(free)))
    inside = substitute(inside, {a: axis(draw.choice([*free, *own])) for a in some})
    return fold("sum", own, inside)


@pytest.mark.parametrize("seed", range(8))
def test_no_axis_is_bound_inside_of_itself(seed):
    draw = random.Random(seed)
    for _ in range(200):
        free = [Axis(f"i{k}", EXTENT) for k in range(2)]
        found = value(draw, free, 4)
        for _ in range(2):
            other = Axis(f"r{draw.randint(0, 3)}x{EXTENT}", EXTENT)
            found = substitute(found, {draw.choice(free): axis(other)})
        for n in topological([found]):
            if n.op is Op.REDUCE:
                assert n.srcs[0].bound.isdisjoint(n.arg.axes)
