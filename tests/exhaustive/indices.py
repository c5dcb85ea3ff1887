"""Index algebra: what is built of small extents and coefficients, against integers at all positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from frameloom.ir import index as ix
from frameloom.ir.cases import assumptions, decide_by_cases, negation
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node, axis
from frameloom.ir.ops import Op
from frameloom.ir.substitute import (
    compare,
    conjunction,
    fold,
    fold_reduction,
    select,
    substitute,
)
from tests.exhaustive.spaces import SKIPPED, Space
from tests.exhaustive.values import COMPARES, MEANING, everywhere, same, value_of

FORMS = [
    (a, b, c)
    for a in (-4, -3, -1, 0, 1, 2, 3, 4, 6)
    for b in (-2, 0, 1, 2, 3)
    for c in range(-5, 6)
]
FEW = [(a, b, c) for a in (-2, 1, 3, 4) for b in (0, 1, 2) for c in (-3, 0, 1, 2)]
EXTENTS = [(a, b) for a in range(1, 5) for b in range(1, 4)]
DIVISORS = range(1, 8)
DIVIDE = {"div": (ix.floordiv, np.floor_divide), "mod": (ix.mod, np.mod)}


def axes_of(extents: Any) -> tuple[Axis, Axis]:
    return Axis(f"i{extents[0]}", extents[0]), Axis(f"j{extents[1]}", extents[1])


def affine(form: tuple[int, int, int], extents: Any) -> Node:
    i, j = axes_of(extents)
    return ix.linear([axis(i), axis(j)], form[:2], form[2])


def direct(form: tuple[int, int, int], at: Any) -> Any:
    i, j = at.values()
    return form[0] * i + form[1] * j + form[2]


def wrong(node: Node, want: Any, at: Any) -> str | None:
    """Whether a node has other values than these, or values outside its bounds."""
    if not same(value_of(node, at), want):
        return f"{node!r} gives {value_of(node, at)} for {want}"
    span = ix.bounds(node)
    if span is not None and not (span[0] <= np.min(want) and np.max(want) <= span[1]):
        return f"{node!r} is not within {span}"
    form = ix.affine(node)
    if form is not None and not same(form[1] + sum(f * at[a] for a, f in form[0].items()), want):
        return f"{node!r} is not {form}"
    return None


def division(extents: Any, form: Any, c: int) -> str | None:
    at = everywhere(axes_of(extents))
    x, value = affine(form, extents), direct(form, at)
    q, r = ix.floordiv(x, c), ix.mod(x, c)
    again = ix.add(ix.mul(q, ix.index(c)), r)
    return wrong(q, value // c, at) or wrong(r, value % c, at) or wrong(again, value, at)


def division_again(extents: Any, form: Any, one: str, c: int, k: int, l: int, other: str, d: int):  # noqa: E741
    """(k * (x / c) + l * j) / d, and likewise of rests."""
    at = everywhere(axes_of(extents))
    j = axes_of(extents)[1]
    (first, exact), (second, exact_too) = DIVIDE[one], DIVIDE[other]
    inner = ix.add(ix.mul(first(affine(form, extents), c), ix.index(k)), ix.mul(axis(j), l))
    value = exact(direct(form, at), c) * k + l * at[j]
    return wrong(second(inner, d), exact_too(value, d), at)


def recombined(extents: Any, form: Any, k: int, c: int, l: int, d: int, m: int):  # noqa: E741
    """k * (x / c) + l * (x % d) + m * i"""
    at = everywhere(axes_of(extents))
    i = axes_of(extents)[0]
    x, value = affine(form, extents), direct(form, at)
    made = ix.add(
        ix.mul(ix.floordiv(x, c), ix.index(k)),
        ix.mul(ix.mod(x, d), ix.index(l)),
        ix.mul(axis(i), m),
    )
    return wrong(made, k * (value // c) + l * (value % d) + m * at[i], at)


def comparison(op: Op, extents: Any, form: Any, other: Any) -> str | None:
    at = everywhere(axes_of(extents))
    node = compare(op, affine(form, extents), affine(other, extents))
    want = MEANING[op](direct(form, at), direct(other, at))
    if not same(value_of(negation(node), at), np.logical_not(want)):
        return "its negation"
    return None if same(value_of(node, at), want) else f"{node!r} for {want}"


def cases(op: Op, inner: Op, extent: int, limit: int, one: Any, other: Any, k: int, end: int):
    """i + k * where(i < limit, one, other) < end"""
    i = Axis("i", extent)
    at = everywhere([i])
    a, b = (ix.linear([axis(i)], [f], c) for f, c in (one, other))
    condition = compare(inner, axis(i), ix.index(limit))
    chosen = Node(Op.WHERE, a.dtype, (condition, a, b))
    sum_ = ix.add(axis(i), ix.mul(chosen, ix.index(k)))
    value = at[i] + k * np.where(
        MEANING[inner](at[i], limit), one[0] * at[i] + one[1], other[0] * at[i] + other[1]
    )
    want = MEANING[op](value, end)
    verdict = decide_by_cases(op, sum_, ix.index(end))
    if verdict is not None and not same(verdict, want):
        return f"decided as {verdict} for {want}"
    made = select(condition, a, b)
    return wrong(ix.add(axis(i), ix.mul(made, ix.index(k))), value, at)


def inside(extents: Any, op: Op, form: Any, limit: int, other: Op, divided: Any, c: int):
    """x / c where a condition on positions holds."""
    at = everywhere(axes_of(extents))
    i, j = axes_of(extents)
    mask = conjunction(
        Node(op, DType.BOOL, (affine(form, extents), ix.index(limit))),
        Node(other, DType.BOOL, (axis(j), ix.index(1))),
    )
    holds = MEANING[op](direct(form, at), limit) & MEANING[other](at[j], 1)
    if not np.any(holds):
        return SKIPPED
    ranges = assumptions(mask)
    for term, (low, high) in ranges.items():
        found = value_of(term, at)[holds]
        if not (low <= found.min() and found.max() <= high):
            return f"{term!r} is not within {low, high}"
    x, value = affine(divided, extents), direct(divided, at)
    for divide, exact in DIVIDE.values():
        node = divide(x, c, ranges)
        got, want = np.broadcast_to(value_of(node, at), holds.shape), exact(value, c)
        if not same(got[holds], want[holds]):
            return f"{node!r}"
        span = ix.bounds(node, ranges)
        if span and not (span[0] <= want[holds].min() and want[holds].max() <= span[1]):
            return f"{node!r} is not within {span}"
    return None


def positions(extents: Any, strides: Any, constant: int, step: int, first: int) -> str | None:
    """Positions of the elements first, first + step, ... of those that are stored."""
    axes = [Axis(f"a{k}", n) for k, n in enumerate(extents)]
    store = ix.linear(map(axis, axes), strides, constant)
    stored = np.unique(value_of(store, everywhere(axes)))
    wanted = stored[first::step]
    steps = np.unique(np.diff(wanted))
    if len(wanted) < 1 or len(steps) > 1:
        return SKIPPED  # no affine function of one axis
    by = int(steps[0]) if len(steps) else 1
    t = Axis("t", len(wanted))
    offset = ix.linear([axis(t)], [by], int(wanted[0]))
    found = ix.positions_of(offset, store, axes)
    if found is None:
        return SKIPPED
    at = everywhere([t])
    where = {a: np.broadcast_to(value_of(n, at), at[t].shape) for a, n in found.items()}
    for a in axes:
        if not (0 <= where[a].min() and where[a].max() < a.extent):
            return f"{a} is {found[a]!r}"
    return None if same(value_of(store, where), wanted) else f"{found}"


def replacement(extents: Any, form: Any, one: str, c: int, k: int, by: Any, moved: Any):
    """x / c + k * i, where i becomes another sum."""
    i, j = axes_of(extents)
    outer = axes_of((3, 2))
    at = everywhere(outer)
    divide, exact = DIVIDE[one]
    node = ix.add(divide(affine(form, extents), c), ix.mul(axis(i), ix.index(k)))
    new = ix.mod(ix.linear(map(axis, outer), by[:2], by[2]), i.extent)
    other = ix.mod(ix.linear(map(axis, outer), moved[:2], moved[2]), j.extent)
    there = {i: direct(by, at) % i.extent, j: direct(moved, at) % j.extent}
    want = exact(form[0] * there[i] + form[1] * there[j] + form[2], c) + k * there[i]
    return wrong(substitute(node, {i: new, j: other}), want, at)


def choice(extents: Any, p: Any, q: Any, r: Any) -> str | None:
    """where(p, where(q, 1, 2), where(p and r, 3, where(q, 4, 5))), with conditions that settle each other."""
    at = everywhere(axes_of(extents))
    conditions = [
        compare(op, affine(form, extents), ix.index(limit)) for op, form, limit in (p, q, r)
    ]
    truths = [np.broadcast_to(value_of(c, at), next(iter(at.values())).shape) for c in conditions]
    for (op, form, limit), truth in zip((p, q, r), truths, strict=True):
        if not same(truth, MEANING[op](direct(form, at), limit)):
            return "a condition"
    (a, b, c), (x, y, z) = conditions, truths
    n = [ix.index(k) for k in range(6)]
    low = select(conjunction(a, c), n[3], select(b, n[4], n[5]))
    node = select(a, select(b, n[1], n[2]), low)
    want = np.where(x, np.where(y, 1, 2), np.where(x & z, 3, np.where(y, 4, 5)))
    both = conjunction(a, b, negation(c), a)
    if not same(value_of(both, at), x & y & ~z):
        return f"{both!r}"
    return wrong(node, want, at)


def reduction(kind: str, extents: Any, op: Op, form: Any, limit: int, bound: int) -> str | None:
    """any and all of a condition over one axis or two."""
    i, j = axes_of(extents)
    at = everywhere((i, j))
    value = compare(op, affine(form, extents), ix.index(limit))
    over = (i, j)[:bound]
    want = {"any": np.any, "all": np.all}[kind](
        np.broadcast_to(value_of(value, at), at[i].shape), axis=tuple(range(bound))
    )
    left = everywhere([j]) if bound == 1 else {}
    reduced = fold_reduction(kind, over, value)
    if reduced is not None and not same(value_of(reduced, left), want):
        return f"folded to {reduced!r} for {want}"
    folded = fold(kind, over, value)
    return None if same(value_of(folded, left), want) else f"{folded!r}"


CONDITIONS = [
    (op, form, limit)
    for op in COMPARES
    for form in ((1, 0, 0), (0, 1, 0), (-1, 0, 1), (1, 1, 0))
    for limit in (0, 1, 2)
]  # fmt: skip
LINES = [(f, c) for f in (-1, 0, 1) for c in (-1, 0, 1, 2)]
SPACES = (
    Space("division", division, (EXTENTS, FORMS, DIVISORS)),
    Space(
        "division of divisions",
        division_again,
        ([(4, 3), (3, 1), (2, 2)], FEW, ["div", "mod"], (2, 3, 4, 6), (-1, 1, 2), (0, 1), ["div", "mod"], (2, 3, 4, 6)),
    ),
    Space(
        "quotients and rests",
        recombined,
        ([(4, 3), (3, 1)], FEW, (-2, 1, 2, 3, 4), (2, 3, 4), (-1, 1, 2), (2, 3, 4), (0, 1)),
    ),
    Space("comparison", comparison, (COMPARES, EXTENTS[::2], FEW, [*FEW, (0, 0, 2), (0, 0, -1)])),
    Space("selections", cases, (COMPARES, COMPARES, (1, 2, 4), (0, 1, 2), LINES, LINES[::2], (-1, 2), (0, 1, 2))),
    Space("inside a mask", inside, ([(4, 2), (3, 3)], COMPARES, FEW, (0, 2), (Op.LT, Op.GE, Op.EQ), FEW[::5], (2, 3))),
    Space(
        "positions",
        positions,
        (
            [(a, b, c) for a in (1, 2, 3) for b in (1, 2, 3) for c in (1, 2)],
            [(a, b, c) for a in range(8) for b in range(8) for c in (0, 1, 2, 6)],
            (-2, 0, 3), (1, 2, 3), (0, 1),
        ),
    ),
    Space("replacement", replacement, ([(4, 3), (3, 1), (1, 2)], FEW, ["div", "mod"], (2, 3, 4), (-1, 0, 2), FEW[::5], FEW[::7])),
    Space("choices", choice, ([(3, 2), (1, 3)], CONDITIONS, CONDITIONS[::2], CONDITIONS[::5])),
    Space("any and all", reduction, (["any", "all"], EXTENTS, COMPARES, FORMS[::7], (-1, 0, 1, 2), (1, 2))),
)  # fmt: skip
