"""How values depend on positions: strides of accesses along an axis, and merging of axes that are contiguous
in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from frameloom.ir.dtype import DType
from frameloom.ir.index import floordiv, linear, mod, sum_of, terms_of
from frameloom.ir.node import Axis, Node, axis
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kind
from frameloom.ir.substitute import topological
from frameloom.ir.symbolic.expr import Int

if TYPE_CHECKING:
    from frameloom.codegen.schedule.nest import Sink

INDEX_OPS = frozenset({Op.ADD, Op.SUB, Op.NEG, Op.MUL, Op.FLOORDIV, Op.MOD, Op.AXIS, Op.CONST})


def stride(offset: Node, a: Axis) -> tuple[int, Node] | None:
    """Returns (s, rest) with offset = s * a + rest and rest independent of `a`; None if there is no such
    form."""
    if a not in offset.free:
        return 0, offset
    terms, constant = terms_of(offset)
    factor = 0
    rest: dict[Node, int] = {}
    for term, f in terms.items():
        if term.op is Op.AXIS and term.arg == a:
            factor += f
        elif a in term.free:
            return None
        else:
            rest[term] = f
    return factor, sum_of(rest, constant)


def stride_along(offset: Node, a: Axis) -> Int | None:
    """Returns by how much `offset` moves with each position of `a`; None if the step varies."""
    along = stride(offset, a)
    return None if along is None else along[0]


def row_major(axes: Sequence[Axis]) -> list[int]:
    """Returns the strides of an array with one dimension per axis."""
    strides, step = [], 1
    for a in reversed(axes):
        strides.append(step)
        step *= a.extent
    return strides[::-1]


def place_in(axes: Sequence[Axis]) -> Node:
    """Returns the offset of the current position in such an array."""
    return linear(map(axis, axes), row_major(axes))


def dense(name: str, dtype: DType, axes: Sequence[Axis], device: str = "cpu") -> Buffer:
    """Returns a TEMP buffer that is such an array."""
    shape = tuple(a.extent for a in axes)
    return Buffer(name, dtype, shape, tuple(row_major(axes)), Kind.TEMP, device=device)


def is_index(node: Node) -> bool:
    """Whether `node` is an I64 node computed from positions and constants alone (as far as this node
    shows)."""
    return node.dtype is DType.I64 and node.op in INDEX_OPS


def coalesce(goals: Sequence[Sink], axes: tuple[Axis, ...]) -> tuple[list[Sink], tuple[Axis, ...]]:
    """Merges pairs of `axes` that every index expression of every sink uses as the two digits of one
    number."""
    goals = list(goals)
    while (pair := _pair(goals, axes)) is not None:
        outer, inner = pair
        merged = Axis(f"{outer.name}_{inner.name}", outer.extent * inner.extent)
        mapping = {
            outer: floordiv(axis(merged), inner.extent),
            inner: mod(axis(merged), inner.extent),
        }
        goals = [_merge(g, mapping, outer, inner, merged) for g in goals]
        axes = _merged(axes, outer, inner, merged)
    return goals, axes


def _pair(goals: Sequence[Sink], axes: tuple[Axis, ...]) -> tuple[Axis, Axis] | None:
    if len(axes) < 2:
        return None
    expressions = _index_expressions([r for g in goals for r in g.roots])
    for outer in axes:
        for inner in axes:
            if (
                outer is not inner
                and _mergeable(expressions, outer, inner)
                and all(_adjacent(g, outer, inner) for g in goals)
            ):
                return outer, inner
    return None


def _merge(g: Sink, mapping: dict[Axis, Node], outer: Axis, inner: Axis, merged: Axis) -> Sink:
    positions = _merged(g.positions, outer, inner, merged)
    plain = replace(g, positions=())
    renamed = plain.renamed(mapping, _merged(g.axes, outer, inner, merged))
    return replace(renamed, positions=positions)


def _merged(axes: tuple[Axis, ...], outer: Axis, inner: Axis, merged: Axis) -> tuple[Axis, ...]:
    return tuple(merged if a == outer else a for a in axes if a != inner)


def _adjacent(g: Sink, outer: Axis, inner: Axis) -> bool:
    """Whether `outer` and `inner` may be merged: argmax and argmin count positions in the order of their
    axes, so the two must be neighbours. Other reductions do not depend on the order."""
    if g.reduction is None or not g.reduction.arg.row.position:
        return True
    at = g.positions.index(outer)
    return g.positions[at + 1 : at + 2] == (inner,)


def _index_expressions(roots: Iterable[Node]) -> list[Node]:
    """Returns the largest index expressions, and those under a division."""
    expressions: dict[Node, None] = {}
    for root in roots:
        if is_index(root):
            expressions[root] = None
    for n in topological(roots):
        inside = is_index(n)
        for s in n.srcs:
            if s.free and is_index(s) and (not inside or n.op in (Op.FLOORDIV, Op.MOD)):
                expressions[s] = None
    return list(expressions)


def _mergeable(expressions: list[Node], outer: Axis, inner: Axis) -> bool:
    for e in expressions:
        if outer not in e.free and inner not in e.free:
            continue
        terms, _ = terms_of(e)
        factors = {t.arg: f for t, f in terms.items() if t.op is Op.AXIS}
        if factors.get(outer, 0) != factors.get(inner, 0) * inner.extent:
            return False
        if any(
            t.op is not Op.AXIS and (outer in t.free or inner in t.free) and not _division(t)
            for t in terms
        ):
            return False
    return True


def _division(term: Node) -> bool:
    # `expressions` contains the expression inside as an item of its own.
    return term.op in (Op.FLOORDIV, Op.MOD) or term.op is Op.LOAD or not is_index(term)
