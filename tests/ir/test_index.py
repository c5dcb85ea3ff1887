"""Index algebra against brute force over all positions, and sympy as a second opinion."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from frameloom.ir import index as ix
from frameloom.ir.dtype import DType
from frameloom.ir.interp import compute
from frameloom.ir.node import Axis, Node, axis, binary, const, load, unary
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kind
from frameloom.ir.substitute import compare, fold, select, substitute

A, B, C = Axis("a", 4), Axis("b", 6), Axis("c", 5)
AXES = (A, B, C)


def value_of(node: Node, at: dict[Axis, int]) -> int:
    if node.op is Op.CONST:
        return node.arg
    if node.op is Op.AXIS:
        return at[node.arg]
    a, b = (value_of(s, at) for s in node.srcs)
    return {
        Op.ADD: a + b,
        Op.MUL: a * b,
        Op.FLOORDIV: a // b if b else 0,
        Op.MOD: a % b if b else 0,
    }[node.op]


def everywhere():
    for p in itertools.product(*(range(a.extent) for a in AXES)):
        yield dict(zip(AXES, p, strict=True))


# A tree of (operation, arguments) that can be built by the algebra and computed directly.
small = st.integers(-9, 9)
divisors = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 24])
trees = st.recursive(
    st.one_of(st.sampled_from(AXES), small),
    lambda t: st.one_of(
        st.tuples(st.just("add"), t, t),
        st.tuples(st.just("mul"), t, small),
        st.tuples(st.just("div"), t, divisors),
        st.tuples(st.just("mod"), t, divisors),
    ),
    max_leaves=8,
)


def build(tree) -> Node:
    if isinstance(tree, Axis):
        return axis(tree)
    if isinstance(tree, int):
        return ix.index(tree)
    kind, a, b = tree
    if kind == "add":
        return ix.add(build(a), build(b))
    if kind == "mul":
        return ix.mul(build(a), ix.index(b))
    return (ix.floordiv if kind == "div" else ix.mod)(build(a), b)


def direct(tree, at) -> int:
    if isinstance(tree, Axis):
        return at[tree]
    if isinstance(tree, int):
        return tree
    kind, a, b = tree
    x = direct(a, at)
    if kind == "add":
        return x + direct(b, at)
    return x * b if kind == "mul" else x // b if kind == "div" else x % b


@given(trees)
@settings(max_examples=300, deadline=None)
def test_algebra_equals_integers(tree):
    node = build(tree)
    span = ix.bounds(node)
    assert span is not None
    form = ix.affine(node)
    for at in everywhere():
        expected = direct(tree, at)
        assert value_of(node, at) == expected
        assert span[0] <= expected <= span[1]
        if form:
            assert expected == form[1] + sum(f * at[a] for a, f in form[0].items())


@given(trees, st.dictionaries(st.sampled_from(AXES), trees, max_size=3))
@settings(max_examples=150, deadline=None)
def test_substitute_equals_evaluation_at_the_replacement(tree, mapping):
    node = build(tree)
    # Replacements stay within the replaced axis' range: that is what simplification relies on.
    nodes = {a: ix.mod(build(t), a.extent) for a, t in mapping.items()}
    replaced = substitute(node, nodes)
    for at in itertools.islice(everywhere(), 0, None, 7):
        inner = {a: value_of(nodes[a], at) if a in nodes else at[a] for a in AXES}
        assert value_of(replaced, at) == value_of(node, inner)


@given(st.permutations(AXES), st.integers(0, 3))
def test_positions_are_recovered_from_offsets(order, constant):
    strides, reach = {}, 1
    for a in order:
        strides[a] = reach
        reach *= a.extent + (a is B)
    offset = ix.linear([axis(a) for a in order], [strides[a] for a in order], constant)
    assert ix.positions_of(offset, offset, AXES) == {a: axis(a) for a in AXES}


def located(axes, strides, constant=0):
    """The positions that are found for the offset of a store at other axes of the same extents, and those axes."""
    others = [Axis(f"{a.name}_", a.extent) for a in axes]
    store = ix.linear([axis(a) for a in axes], strides, constant)
    offset = ix.linear([axis(a) for a in others], strides, constant)
    return ix.positions_of(offset, store, axes), others


def test_positions_are_right_wherever_they_are_found():
    found = 0
    for extents in itertools.product((1, 2, 3), repeat=3):
        axes = [Axis(name, n) for name, n in zip("abc", extents)]
        for strides in itertools.product(range(7), repeat=3):
            positions, others = located(axes, strides, constant=sum(strides))
            if positions is None:
                continue
            found += 1
            for at in itertools.product(*map(range, extents)):
                given = dict(zip(others, at))
                assert [value_of(positions[a], given) for a in axes] == list(at)
    assert found > 1000


def test_views_collapse():
    h, d = Axis("h", 12), Axis("d", 64)
    flat = ix.linear([axis(h), axis(d)], [64, 1])
    assert ix.floordiv(flat, 64) is axis(h)
    assert ix.mod(flat, 64) is axis(d)
    assert ix.mod(ix.floordiv(flat, 32), 2) is ix.floordiv(axis(d), 32)
    assert ix.add(ix.mul(ix.floordiv(flat, 7), ix.index(7)), ix.mod(flat, 7)) is flat
    assert ix.floordiv(ix.floordiv(flat, 3), 5) is ix.floordiv(flat, 15)
    assert ix.mod(ix.mod(flat, 30), 5) is ix.mod(flat, 5)


def test_overlapping_layouts_have_no_positions():
    offset = ix.linear([axis(A), axis(B)], [1, 1])
    assert ix.positions_of(offset, offset, (A, B)) is None


def test_ranges_narrow_an_axis():
    j = Axis("j", 64)
    shifted = ix.add(axis(j), ix.index(-32))
    assert ix.floordiv(shifted, 32, {axis(j): (32, 63)}) is ix.index(0)
    assert ix.mod(shifted, 32, {axis(j): (32, 63)}) is shifted


def test_known_ranges_divide_as_integers_do():
    """Where digits do not begin at 0, too."""
    for coefficient, low, constant in itertools.product((2, 3, 4), range(0, 10, 2), (-5, 0, 3)):
        for count in range(1, 4):
            b = Axis("b", 12)
            node = ix.linear([axis(A), axis(b)], [coefficient, 1], constant)
            ranges = {axis(b): (low, min(low + count, 11))}
            for c in (2, 3, 4, 6, 8, 12):
                quotient, rest = ix.floordiv(node, c, ranges), ix.mod(node, c, ranges)
                for at in itertools.product(range(A.extent), range(low, ranges[axis(b)][1] + 1)):
                    given, whole = dict(zip((A, b), at)), coefficient * at[0] + at[1] + constant
                    assert value_of(quotient, given) == whole // c
                    assert value_of(rest, given) == whole % c


def test_bound_axes_are_canonical_and_never_captured():
    x, y = Axis("x", 8), Axis("y", 8)

    def f(a, b):
        return Node(Op.XOR, DType.I64, (ix.mul(axis(a), ix.index(3)), axis(b)))

    first, second = fold("sum", (x,), f(x, y)), fold("sum", (y,), f(y, x))
    assert substitute(first, {y: axis(x)}) is second
    r = first.arg.axes[0]
    # Putting the reduction's own axis in from outside must not be captured.
    moved = substitute(first, {y: axis(r)})
    assert moved.free == {r} and r not in moved.bound
    nested = fold("max", (r,), moved)
    assert not nested.free and len(nested.bound) == 2


def test_sympy_agrees():
    import sympy

    names = {a: sympy.Symbol(a.name, integer=True, nonnegative=True) for a in AXES}
    flat = ix.linear([axis(A), axis(B), axis(C)], [30, 5, 1], 7)
    for c in (2, 5, 6, 10, 30, 45):
        q, r = ix.floordiv(flat, c), ix.mod(flat, c)
        expression = 30 * names[A] + 5 * names[B] + names[C] + 7
        for at in everywhere():
            given_values = {names[a]: v for a, v in at.items()}
            assert sympy.floor(expression / c).subs(given_values) == value_of(q, at)
            assert sympy.Mod(expression, c).subs(given_values) == value_of(r, at)


def test_chosen_positions_are_in_range():
    i = axis(Axis("i0x9", 9))
    moved = ix.add(i, ix.index(-3))
    low = select(compare(Op.LT, moved, ix.index(0)), ix.index(0), moved)
    assert ix.bounds(low) == (0, 5)
    both = select(compare(Op.GT, low, ix.index(4)), ix.index(4), low)
    assert ix.bounds(both) == (0, 4)
    negative = compare(Op.LT, moved, ix.index(0))
    assert ix.bounds(select(negative, ix.mul(moved, ix.index(-1)), moved)) == (0, 5)
    assert ix.bounds(select(compare(Op.GE, moved, ix.index(2)), ix.index(2), moved)) == (-3, 2)


def assert_within_bounds(node, memory):
    span, values = ix.bounds(node), compute(node, memory).long()
    assert span is None or (span[0] <= values.min() and values.max() <= span[1]), node


@pytest.mark.parametrize("op", [Op.LT, Op.LE, Op.GE, Op.GT])
def test_ranges_of_choices_hold_what_they_come_to(op):
    moved = ix.add(axis(Axis("i0x9", 9)), ix.index(-3))
    turned = ix.mul(moved, ix.index(-1))
    for limit, other in itertools.product(range(-4, 7), (-2, 1)):
        for asked, chosen in itertools.product((moved, turned), repeat=2):
            condition = compare(op, asked, ix.index(limit))
            assert_within_bounds(select(condition, chosen, ix.index(other)), {})
            assert_within_bounds(select(condition, ix.index(other), chosen), {})


@pytest.mark.parametrize("dtype", [DType.U8, DType.I8])
def test_ranges_of_narrow_integers_hold_what_wraps(dtype):
    b = Buffer("b", dtype, (256,), (1,), Kind.INPUT)
    memory = {b: torch.arange(256).to(dtype.to_torch())}
    x = load(b, axis(Axis("i0x256", 256)))
    for limit, number in itertools.product((3, 50, 120), (2, 100, 127)):
        for choice in (Op.MIN, Op.MAX):
            some = binary(choice, x, const(limit, dtype))
            for op in (Op.ADD, Op.SUB, Op.MUL):
                assert_within_bounds(binary(op, some, const(number, dtype)), memory)
            assert_within_bounds(unary(Op.NEG, some), memory)
