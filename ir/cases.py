"""Conclusions from conditions on positions: ranges, negations, comparisons with one result in all cases."""

from __future__ import annotations

from collections.abc import Mapping

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.symbolic.compare import at_most, less, same
from frameloom.ir.symbolic.expr import Int, Size, largest, smallest

MAX_SELECTIONS = 4  # nested selections

OPPOSITE = {
    Op.LT: Op.GE, Op.GE: Op.LT, Op.LE: Op.GT, Op.GT: Op.LE, Op.EQ: Op.NE, Op.NE: Op.EQ,
}  # fmt: skip


def negation(condition: Node) -> Node:
    """Returns NOT of a condition."""
    if condition.op is Op.NOT:
        return condition.srcs[0]
    # NaN makes both a comparison and its opposite false.
    if condition.op in OPPOSITE and not condition.srcs[0].dtype.is_float:
        return Node(OPPOSITE[condition.op], DType.BOOL, condition.srcs)
    return Node(Op.NOT, DType.BOOL, (condition,))


def parts_of(condition: Node) -> list[Node]:
    """Returns the conditions of which this one is the AND."""
    parts = []
    stack = [condition]
    while stack:
        c = stack.pop()
        if c.op is Op.AND:
            stack.extend(c.srcs)
        else:
            parts.append(c)
    return parts


def assumptions(mask: Node) -> dict[Node, index.Range]:
    """Returns ranges of single terms (axes, loaded indices) that hold where `mask` is true."""
    ranges: dict[Node, index.Range] = {}
    for n in parts_of(mask):
        if n.op not in _LIMITS or n.srcs[0].dtype is not DType.I64:
            continue
        # coefficient * term + constant <op> 0
        terms, constant = index.terms_of(index.sub(n.srcs[0], n.srcs[1]))
        if len(terms) != 1:
            continue
        ((term, coefficient),) = terms.items()
        low, high = ranges.get(term) or index.bounds(term) or (-_UNBOUNDED, _UNBOUNDED)
        if coefficient == 1:
            low, high = _LIMITS[n.op](low, high, -constant)
        elif coefficient == -1:
            high, low = (-v for v in _LIMITS[n.op](-high, -low, -constant))
        ranges[term] = (low, high)
    return {t: r for t, r in ranges.items() if _is_bounded(*r)}


def _is_bounded(low: Int, high: Int) -> bool:
    if isinstance(low, Size) or isinstance(high, Size):
        known = (n for n in (low, high) if not isinstance(n, Size))
        return all(-_UNBOUNDED < n < _UNBOUNDED for n in known)
    return bool(-_UNBOUNDED < low <= high < _UNBOUNDED)


_UNBOUNDED = 1 << 62
_LIMITS = {
    Op.LT: lambda low, high, limit: (low, smallest(high, limit - 1)),
    Op.LE: lambda low, high, limit: (low, smallest(high, limit)),
    Op.GT: lambda low, high, limit: (largest(low, limit + 1), high),
    Op.GE: lambda low, high, limit: (largest(low, limit), high),
    Op.EQ: lambda low, high, limit: (largest(low, limit), smallest(high, limit)),
}


def decide_by_cases(op: Op, a: Node, b: Node) -> bool | None:
    """Returns `a <op> b` if it is the same on both sides of every selection (WHERE) in the two; None if that
    is not known.

    Example: i - where(i < 1, -1, i - 1) != 1 is false: in the first case i is 0.
    """
    if a.dtype is not DType.I64 or not (_has_selection(a) or _has_selection(b)):
        return None
    return _decide(op, index.sub(a, b), {}, MAX_SELECTIONS)


def _has_selection(node: Node) -> bool:
    if node.op is Op.WHERE:
        return True
    return node.op in (Op.ADD, Op.SUB, Op.MUL) and any(map(_has_selection, node.srcs))


def _decide(
    op: Op, difference: Node, ranges: Mapping[Node, index.Range], depth: int
) -> bool | None:
    terms, constant = index.terms_of(difference)
    chosen = next((t for t in terms if t.op is Op.WHERE), None)
    if chosen is None:
        # Terms without known bounds may have wrapped around.
        known = all(index.bounds(t) is not None for t in terms)
        span = index.bounds(difference, ranges) if known else None
        return None if span is None else compare_ranges(op, span, (0, 0))
    if not depth:
        return None
    condition, *values = chosen.srcs
    others = index.sum_of({t: f for t, f in terms.items() if t is not chosen}, constant)
    verdicts: set[bool | None] = set()
    for holds, value in zip((condition, negation(condition)), values, strict=True):
        inside = index.add(others, index.mul(value, index.index(terms[chosen])))
        verdicts.add(_decide(op, inside, {**ranges, **assumptions(holds)}, depth - 1))
        if len(verdicts) > 1 or None in verdicts:
            return None
    return verdicts.pop()


def compare_ranges(op: Op, a: index.Range, b: index.Range) -> bool | None:
    """Returns `a <op> b` if it is the same for all values in these ranges; else None."""
    if op in (Op.GT, Op.GE):
        op, a, b = (Op.LT if op is Op.GT else Op.LE), b, a
    if op is Op.LT:
        return True if less(a[1], b[0]) else False if at_most(b[1], a[0]) else None
    if op is Op.LE:
        return True if at_most(a[1], b[0]) else False if less(b[1], a[0]) else None
    apart = less(a[1], b[0]) or less(b[1], a[0])
    if not apart and not (same(a[0], a[1]) and same(a[1], b[0]) and same(b[0], b[1])):
        return None
    return apart is (op is Op.NE)
