"""Index algebra: I64 nodes over axes, kept in one canonical form.

`add`, `mul`, `floordiv` and `mod` build sums `c1*t1 + c2*t2 + ... + c0` with sorted terms, and use the ranges
that axis extents give to resolve divisions: `(64*h + d) // 64` is `h` when `0 <= d < 64`.  By the rules of
node.py index arithmetic never overflows; do not use `floordiv` and `mod` on the user's integer data.

`ranges` narrows terms (axes, loaded indices) where more is known, as inside a mask.  Renaming and binding of
axes: substitute.py.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Mapping, Sequence

from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node, axis, index
from frameloom.ir.ops import Op
from frameloom.ir.symbolic.compare import at_most, less, same, surely_positive
from frameloom.ir.symbolic.expr import (
    Int,
    Size,
    gcd,
    hint_of,
    largest,
    may_exceed_1,
    number,
    smallest,
)

Range = tuple[Int, Int]
Ranges = Mapping[Node, Range]

_WORD = 1 << 64
_I64: Range = (-(1 << 63), (1 << 63) - 1)


# --- sums


def terms_of(node: Node) -> tuple[dict[Node, int], int]:
    """Returns (coefficient per term, constant) of `node`; terms are neither sums nor multiples of
    constants."""
    if node.op is Op.AXIS:
        return {node: 1}, 0
    terms: dict[Node, int] = {}
    constant = 0
    stack = [(node, 1)]
    while stack:
        n, factor = stack.pop()
        if n.op is Op.CONST:
            constant += factor * n.arg
        elif n.op is Op.ADD:
            stack.append((n.srcs[1], factor))
            stack.append((n.srcs[0], factor))
        elif n.op is Op.SUB:
            stack.append((n.srcs[1], -factor))
            stack.append((n.srcs[0], factor))
        elif n.op is Op.NEG:
            stack.append((n.srcs[0], -factor))
        elif n.op is Op.MUL and n.srcs[1].op is Op.CONST:
            stack.append((n.srcs[0], factor * n.srcs[1].arg))
        elif n.op is Op.MUL and n.srcs[0].op is Op.CONST:
            stack.append((n.srcs[1], factor * n.srcs[0].arg))
        else:
            terms[n] = terms.get(n, 0) + factor
    return terms, constant


def sum_of(terms: Mapping[Node, int], constant: int = 0) -> Node:
    """Returns the canonical node for `sum(coefficient * term) + constant`: large coefficients first, the
    constant last."""
    total: Node | None = None
    for term, factor in _sorted(terms):
        factor = _wrap(factor)
        if factor == 0:
            continue
        scaled = term if factor == 1 else Node(Op.MUL, DType.I64, (term, index(factor)))
        total = scaled if total is None else Node(Op.ADD, DType.I64, (total, scaled))
    constant = _wrap(constant)
    if total is None:
        return index(constant)
    return total if constant == 0 else Node(Op.ADD, DType.I64, (total, index(constant)))


def _wrap(value: Int) -> Int:
    if isinstance(value, Size):
        return value
    return value if _I64[0] <= value <= _I64[1] else (value - _I64[0]) % _WORD + _I64[0]


def _sorted(terms: Mapping[Node, int]) -> list[tuple[Node, int]]:
    items = list(terms.items())
    if len(items) > 1:
        items.sort(key=_sort_key)
    return items


def _sort_key(item: tuple[Node, int]) -> tuple[int, int, str]:
    node, coefficient = item
    if type(coefficient) is not int:
        coefficient = hint_of(coefficient)
    return -abs(coefficient), -coefficient, node.arg.name if node.op is Op.AXIS else _text(node)


LONG_TEXT = 1000
_TEXTS: weakref.WeakKeyDictionary[Node, str] = weakref.WeakKeyDictionary()


def _text(node: Node) -> str:
    # A sort key that is the same in every process, unlike an object's identity.
    if node.op is Op.AXIS:
        return node.arg.name  # type: ignore[no-any-return]
    stack = [node]
    while stack:
        n = stack[-1]
        waiting = [s for s in n.srcs if s not in _TEXTS]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if n not in _TEXTS:
            text = f"{n.op.value}({n.arg!r};{','.join(_TEXTS[s] for s in n.srcs)})"
            # A hash keeps the text short: a node that is used many times would be written out each time.
            if len(text) > LONG_TEXT:
                text = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
            _TEXTS[n] = text
    return _TEXTS[node]


def add(*nodes: Node) -> Node:
    """Returns the sum of index nodes."""
    terms: dict[Node, int] = {}
    constant = 0
    for node in nodes:
        more, c = terms_of(node)
        constant += c
        for term, factor in more.items():
            terms[term] = terms.get(term, 0) + factor
    return sum_of(terms, constant + _recombine(terms))


def replaced(terms: Mapping[Node, int], constant: int, instead: Mapping[Node, Node]) -> Node | None:
    """Returns the sum in which `instead` replaces each term.  Returns None if a new term is a remainder
    (MOD): it may combine with a quotient, and `add` has to check that for each sum."""
    total: dict[Node, int] = {}
    for term, factor in terms.items():
        node = instead[term]
        if node.op is Op.AXIS:
            total[node] = total.get(node, 0) + factor
            continue
        more, c = terms_of(node)
        constant += factor * c
        for t, f in more.items():
            if t.op is Op.MOD:
                return None
            total[t] = total.get(t, 0) + factor * f
    return sum_of(total, constant)


def sub(a: Node, b: Node) -> Node:
    return add(a, mul(b, index(-1)))


def mul(a: Node, b: Node | int) -> Node:
    """Returns the product; distributes a constant over a sum."""
    b = b if isinstance(b, Node) else index(b)
    if a.op is Op.CONST:
        a, b = b, a
    if b.op is not Op.CONST:
        first, second = sorted((a, b), key=_text)
        return Node(Op.MUL, DType.I64, (first, second))
    terms, constant = terms_of(a)
    return sum_of({t: f * b.arg for t, f in terms.items()}, constant * b.arg)


def _recombine(terms: dict[Node, int]) -> int:
    # k*c*(x // c) + k*(x % c) -> k*x, in place; returns what has to be added to the constant.
    constant = 0
    changed = True
    while changed:
        changed = False
        for term, k in list(terms.items()):
            if term.op is not Op.MOD or term.srcs[1].op is not Op.CONST or k == 0:
                continue
            x, c = term.srcs[0], term.srcs[1].arg
            quotient, quotient_constant = terms_of(floordiv(x, c))
            divisions = [q for q in quotient if q.op is not Op.AXIS]
            if not divisions or any(terms.get(q, 0) != quotient[q] * k * c for q in divisions):
                continue
            for q, f in quotient.items():
                terms[q] = terms.get(q, 0) - f * k * c
            del terms[term]
            whole, offset = terms_of(x)
            for t, f in whole.items():
                terms[t] = terms.get(t, 0) + f * k
            constant += k * (offset - c * quotient_constant)
            changed = True
            break
    return constant


# --- ranges

_BOUNDS: weakref.WeakKeyDictionary[Node, Range | None] = weakref.WeakKeyDictionary()


def bounds(node: Node, ranges: Ranges | None = None) -> Range | None:
    """Returns the least and the greatest value, or None if they are not known or do not fit 64 bits."""
    if ranges:
        ranges = {t: r for t, r in ranges.items() if t.free <= node.free}
    known: dict[Node, Range | None] | weakref.WeakKeyDictionary[Node, Range | None]
    known = dict(ranges) if ranges else _BOUNDS
    if node in known:
        return known[node]
    stack = [node]
    while stack:
        n = stack[-1]
        waiting = [s for s in n.srcs if s not in known] if n.op in _RANGED else ()
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if n not in known:
            interval = _bounds_of(n, [known[s] for s in n.srcs] if n.op in _RANGED else [])
            known[n] = interval if interval and _fits(interval) else None
    return known[node]


def _fits(interval: Range, width: Range = _I64) -> bool:
    """Whether the range is inside the range `width`.  Values computed from symbolic sizes always fit 64 bits,
    by the rules of index arithmetic."""
    if isinstance(interval[0], Size) or isinstance(interval[1], Size):
        return width is _I64
    return bool(width[0] <= interval[0] and interval[1] <= width[1])


_RANGED = frozenset({
    Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX, Op.WHERE, Op.CAST,
})  # fmt: skip


def _where(condition: Node, holds: bool, n: Node, known: Range | None) -> Range | None:
    """Returns the range of `n` where `condition`, a comparison of `n` or `-n` with a constant, is `holds`.
    If that is never the case for these sizes, any range is right, because the range of the other side
    counts."""
    if known is None or not n.dtype.is_int or condition.op not in _BELOW:
        return known
    if condition.srcs[1].op is not Op.CONST:
        return known
    position, limit = condition.srcs[0], number(condition.srcs[1].arg)
    sign = 1
    if n is not position:
        terms, constant = terms_of(position)
        if terms_of(n) != ({t: -c for t, c in terms.items()}, -constant):
            return known
        sign, known = -1, (-known[1], -known[0])
    # `position < end`, or else `position >= end`
    below, end = _BELOW[condition.op][0], limit + _BELOW[condition.op][1]
    if below is holds:
        low, high = known[0], smallest(known[1], end - 1)
    else:
        low, high = largest(known[0], end), known[1]
    if surely_positive(low - high):  # this side is never used
        low, high = known
    return (low, high) if sign == 1 else (-high, -low)


_BELOW = {Op.LT: (True, 0), Op.LE: (True, 1), Op.GE: (False, 0), Op.GT: (False, 1)}


def _bounds_of(n: Node, of: Sequence[Range | None]) -> Range | None:
    op = n.op
    if op is Op.AXIS:
        return 0, n.arg.extent - 1
    if op is Op.CONST:
        return (number(n.arg), number(n.arg)) if not n.dtype.is_float else None
    if op is Op.WHERE:
        one, other = (_where(n.srcs[0], k == 1, n.srcs[k], of[k]) for k in (1, 2))
        if not one or not other:
            return None
        return smallest(one[0], other[0]), largest(one[1], other[1])
    if op is Op.MOD and n.srcs[1].op is Op.CONST and surely_positive(n.srcs[1].arg):
        c = n.srcs[1].arg
        a = of[0]
        return a if a and surely_positive(a[0] + 1) and surely_positive(c - a[1]) else (0, c - 1)
    if op is Op.CAST or not n.dtype.is_int:
        return _bounds_of_cast(n, of[0] if of else None)
    if op not in _RANGED or any(r is None for r in of):
        return _width(n.dtype)
    a, b = of[0], of[-1]
    assert a is not None and b is not None
    if op is Op.NEG:
        interval = (-a[1], -a[0])
    elif op is Op.ADD:
        interval = (a[0] + b[0], a[1] + b[1])
    elif op is Op.SUB:
        interval = (a[0] - b[1], a[1] - b[0])
    elif op in (Op.MIN, Op.MAX):
        extreme = smallest if op is Op.MIN else largest
        interval = (extreme(a[0], b[0]), extreme(a[1], b[1]))
    elif op is Op.MUL or (op is Op.FLOORDIV and surely_positive(b[0])):
        corners = [x * y if op is Op.MUL else x // y for x in a for y in b]
        interval = (smallest(*corners), largest(*corners))
    else:
        return _width(n.dtype)
    width = _width(n.dtype) or _I64
    # A narrow integer may have wrapped.
    return interval if _fits(interval, width) else _width(n.dtype)


def _bounds_of_cast(n: Node, source: Range | None) -> Range | None:
    width = _width(n.dtype)
    if n.op is not Op.CAST or source is None or n.srcs[0].dtype.is_float:
        return width
    return source if width is None or _fits(source, width) else width


def _width(dtype: DType) -> Range | None:
    if dtype.kind == "b":
        return (0, 1)
    if dtype is DType.I64 or dtype.is_float:
        return None
    low = 0 if dtype.kind == "u" else -(1 << dtype.bits - 1)
    return low, low + (1 << dtype.bits) - 1


# --- division


def floordiv(node: Node, divisor: int, ranges: Ranges | None = None) -> Node:
    """Returns `node // divisor` for a positive constant divisor, rounded to minus infinity."""
    quotient, _ = _divide(node, divisor, ranges)
    return quotient


def mod(node: Node, divisor: int, ranges: Ranges | None = None) -> Node:
    """Returns `node % divisor` for a positive constant divisor: 0 <= result < divisor."""
    _, remainder = _divide(node, divisor, ranges)
    return remainder


def _divide(node: Node, c: int, ranges: Ranges | None) -> tuple[Node, Node]:
    """Returns quotient and remainder.  First it takes out whole multiples of c.  Then it splits the rest at a
    divisor g of c into g*high + low with 0 <= low < g, so that only high is divided: (g*high + low) // (g*m)
    = high // m."""
    # A size may be 0, but nothing is divided by it then: the loops around are empty.
    assert isinstance(c, Size) or c > 0, c
    if c == 1:
        return node, index(0)
    terms, constant = terms_of(node)
    whole: dict[Node, int] = {}
    rest: dict[Node, int] = {}
    for t, f in terms.items():
        if f % c == 0:
            whole[t] = f // c
        else:
            rest[t] = f
    whole_constant, rest_constant = divmod(constant, c)
    remainder = sum_of(rest, rest_constant)
    k = _common_quotient(bounds(remainder, ranges), c)
    if k is not None:
        return sum_of(whole, whole_constant + k), sum_of(rest, rest_constant - k * c)
    divisors = {gcd(f, c) for f in rest.values()} - {1}
    for g in sorted(divisors, key=hint_of, reverse=True):
        low = {t: f for t, f in rest.items() if f % g}
        high = {t: f // g for t, f in rest.items() if f % g == 0}
        high_constant, low_constant = divmod(rest_constant, g)
        low_node = sum_of(low, low_constant)
        k = _common_quotient(bounds(low_node, ranges), g)
        if k is None:
            continue
        q, r = _divide(sum_of(high, high_constant + k), c // g, ranges)
        return (
            add(sum_of(whole, whole_constant), q),
            add(mul(r, index(g)), sum_of(low, low_constant - k * g)),
        )
    # Nothing is resolved: coefficients of the rest become less than c, so that equal divisions have equal
    # nodes.
    for t, f in rest.items():
        if not isinstance(c, Size) and not isinstance(f, Size):
            whole[t] = whole.get(t, 0) + f // c
            rest[t] = f % c
    return (
        add(sum_of(whole, whole_constant), _quotient(rest, rest_constant, c, ranges)),
        _remainder(rest, rest_constant, c, ranges),
    )


def _common_quotient(span: Range | None, c: Int) -> Int | None:
    """Returns the quotient by `c` that all values of the range have; None if it is not known to be the
    same."""
    if span is None:
        return None
    low, high = span
    if isinstance(c, Size) and at_most(0, low) and less(high, c):
        return 0  # also if `c` may be 0; divisions of sizes do not resolve that
    return low // c if same(low // c, high // c) else None


def _quotient(rest: dict[Node, int], constant: int, c: int, ranges: Ranges | None) -> Node:
    # (y + x // a) // c -> (a*y + x) // (a*c)
    for t, f in rest.items():
        if f == 1 and t.op is Op.FLOORDIV and t.srcs[1].op is Op.CONST:
            x, a = t.srcs[0], t.srcs[1].arg
            others = {u: g * a for u, g in rest.items() if u is not t}
            return floordiv(add(x, sum_of(others, constant * a)), a * c, ranges)
    return Node(Op.FLOORDIV, DType.I64, (sum_of(rest, constant), index(c)))


def _remainder(rest: dict[Node, int], constant: int, c: int, ranges: Ranges | None) -> Node:
    # (k * (x % (c*d)) + y) % c -> (k*x + y) % c
    unwrapped = {
        t: f for t, f in rest.items()
        if t.op is Op.MOD and t.srcs[1].op is Op.CONST and t.srcs[1].arg % c == 0
    }  # fmt: skip
    if unwrapped:
        others = {t: f for t, f in rest.items() if t not in unwrapped}
        inner = [mul(t.srcs[0], index(f)) for t, f in unwrapped.items()]
        return mod(add(sum_of(others, constant), *inner), c, ranges)
    return Node(Op.MOD, DType.I64, (sum_of(rest, constant), index(c)))


# --- positions and offsets


def affine(node: Node) -> tuple[dict[Axis, int], int] | None:
    """Returns (coefficient per axis, constant) if `node` is an affine function of axes alone, else None."""
    terms, constant = terms_of(node)
    coefficients: dict[Axis, int] = {}
    for t, f in terms.items():
        if t.op is not Op.AXIS:
            return None
        if f:
            coefficients[t.arg] = f
    return coefficients, constant


def linear(positions: Iterable[Node], strides: Iterable[int], offset: int = 0) -> Node:
    """Returns offset + sum(position * stride)."""
    return add(
        index(offset), *(mul(p, index(s)) for p, s in zip(positions, strides, strict=True) if s)
    )


def positions_of(
    offset: Node, store_offset: Node, axes: Sequence[Axis], ranges: Ranges | None = None
) -> dict[Axis, Node] | None:
    """Returns the value of each axis at which an affine `store_offset` over `axes` equals `offset`; None if
    the offsets are not those of a strided layout without overlap.  `offset` must address an element that is
    stored."""
    affine_offset = affine(store_offset)
    order = None if affine_offset is None else _nesting(affine_offset[0], axes)
    if affine_offset is None or order is None:
        return None
    coefficients, constant = affine_offset
    positions = {a: index(0) for a in axes}
    if offset is store_offset:
        return positions | {a: axis(a) for a in order}
    rest = add(offset, index(-constant))
    for a in reversed(order):
        positions[a], rest = _divide(rest, coefficients[a], ranges)
    return positions


def _nesting(coefficients: Mapping[Axis, Int], axes: Sequence[Axis]) -> list[Axis] | None:
    """Returns the axes with more than one position, innermost first, if each one steps over all elements that
    the axes before it reach; else None.  Then different positions have different offsets, and division by the
    coefficients, outermost first, finds them.  (Not cached: comparisons of symbolic sizes add guards.)"""
    moving = [a for a in axes if may_exceed_1(a.extent)]
    moving.sort(key=lambda a: (hint_of(coefficients.get(a, 0)), hint_of(a.extent)))
    reach: Int = 1
    for a in moving:
        step = coefficients.get(a, 0)
        if step < reach:
            return None
        reach += step * (a.extent - 1)
    return moving


__all__ = [
    "Range", "Ranges", "add", "affine", "axis", "bounds", "floordiv", "index", "linear", "mod", "mul", "positions_of",
    "sub", "sum_of", "terms_of",
]  # fmt: skip
