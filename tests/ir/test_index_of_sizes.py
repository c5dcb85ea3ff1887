"""Positions recovered from offsets whose strides are sizes known at run time."""

import itertools

from frameloom.ir import index as ix
from frameloom.ir.node import Axis, axis
from frameloom.ir.ops import Op
from frameloom.ir.substitute import compare, select
from frameloom.ir.symbolic.atoms import evaluated
from frameloom.ir.symbolic.conditions import Conditions
from frameloom.ir.symbolic.shape_env import ShapeEnv


def value_at(node, at, value):
    """What an index is at these positions, where the symbols have these values."""
    if node.op is Op.CONST:
        return evaluated(node.arg, value)
    if node.op is Op.AXIS:
        return at[node.arg]
    a, b = (value_at(s, at, value) for s in node.srcs)
    if node.op is Op.ADD:
        return a + b
    if node.op is Op.MUL:
        return a * b
    return a // b if node.op is Op.FLOORDIV else a % b


def holds(shape_env, value):
    return Conditions(
        tuple(shape_env.at_least_0), tuple(shape_env.zero), tuple(shape_env.not_0)
    ).hold(value)


def test_positions_are_right_for_all_sizes_that_the_guards_accept():
    forms = [
        lambda n, m: ((n, 1), (m, n)),
        lambda n, m: ((n, m), (m, 1)),
        lambda n, m: (((n + 2) // 3, 3), (m, n)),
        lambda n, m: (((n + 1) // 2, 2), (m, n)),
        lambda n, m: ((n, 2 * m), ((m + 1) // 2, 4)),
        lambda n, m: ((n, m + 1), (m, 1), (2, n * m + n)),
    ]
    for form, *hints in itertools.product(forms, range(2, 6), range(2, 6)):
        shape_env = ShapeEnv()
        symbols = [shape_env.symbol(h, None) for h in hints]
        layout = form(*symbols)
        axes = [Axis(f"i{k}", extent) for k, (extent, _) in enumerate(layout)]
        strides = [stride for _, stride in layout]
        others = [Axis(f"{a.name}_", a.extent) for a in axes]
        store, offset = (ix.linear(map(axis, some), strides) for some in (axes, others))
        positions = ix.positions_of(offset, store, axes)
        if positions is None:
            continue
        for sizes in itertools.product(range(1, 7), repeat=2):
            value = dict(zip(shape_env.symbols, sizes)).__getitem__
            if not holds(shape_env, value):
                continue
            extents = [evaluated(a.extent, value) for a in axes]
            for at in itertools.product(*map(range, extents)):
                given = dict(zip(others, at))
                got = [value_at(positions[a], given, value) for a in axes]
                assert got == list(at), (layout, hints, sizes)


def test_clamped_positions_lie_inside():
    """Whatever the size: so borders that repeat an edge are known to read nothing else."""
    shape_env = ShapeEnv()
    n = shape_env.symbol(9, None)
    inner = ix.add(axis(Axis("i", n + 2)), ix.index(-1))
    inner = select(compare(Op.LT, inner, ix.index(0)), ix.index(0), inner)
    last = ix.index(n - 1)
    low, high = ix.bounds(select(compare(Op.GT, inner, last), last, inner))
    for value in range(1, 12):
        assert evaluated(low, lambda s, value=value: value) == 0
        assert evaluated(high, lambda s, value=value: value) == value - 1
