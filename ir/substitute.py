"""Renaming and binding: replaces axes or whole nodes inside a node, and binds axes by a REDUCE.

Bound axes have canonical names (`fold`).  So two reductions that differ only in the names of their axes
become the same node; sibling reductions over one extent share their axis (one loop); and nested ones never
do.  Rebuilt index arithmetic and conditions on it are simplified.  The functions use explicit stacks and
visit each distinct node once.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from frameloom.ir import index
from frameloom.ir.cases import compare_ranges, decide_by_cases, negation, parts_of
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node, axis, const, reduce, where
from frameloom.ir.ops import COMPARES, Op
from frameloom.ir.reductions import REDUCTIONS, identity
from frameloom.ir.symbolic.compare import surely_positive

_fresh = itertools.count()


def topological(roots: Iterable[Node]) -> list[Node]:
    """Returns every node reachable from `roots` once, sources before users."""
    order: list[Node] = []
    seen: set[Node] = set()
    # A node whose sources are above it on the stack is wrapped in a tuple: it is listed when it is popped
    # a second time.
    stack: list[Node | tuple[Node]] = [*list(roots)[::-1]]
    while stack:
        n = stack.pop()
        if isinstance(n, tuple):
            order.append(n[0])
        elif n not in seen:
            seen.add(n)
            if srcs := n.srcs:
                stack.append((n,))
                if len(srcs) == 1:
                    stack.append(srcs[0])
                else:
                    stack.extend(srcs[::-1])
            else:
                order.append(n)
    return order


def walk(roots: Iterable[Node], inside: Callable[[Node], Any]) -> Iterator[Node]:
    """Yields every node once, from `roots` on, users first; goes to the sources of those for which `inside`
    is true."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            yield n
            if inside(n):
                stack.extend(n.srcs)


_LOADS: weakref.WeakKeyDictionary[Node, tuple[Node, ...]] = weakref.WeakKeyDictionary()


def loads(roots: Iterable[Node]) -> Iterator[Node]:
    """Yields the LOADs reachable from each of `roots` (cached per root)."""
    for root in roots:
        cached = _LOADS.get(root)
        if cached is None:
            cached = _LOADS[root] = tuple(n for n in topological([root]) if n.op is Op.LOAD)
        yield from cached


def space(extents: Sequence[int]) -> tuple[Axis, ...]:
    """Returns the axes of a store, outermost first: equal extents always give equal axes."""
    return tuple(Axis(f"i{k}x{extent}", extent) for k, extent in enumerate(extents))


def fold(kind: str, axes: Sequence[Axis], value: Node) -> Node:
    """Returns the REDUCE of `value` over `axes`, with canonical names for the axes."""
    taken: set[str] = set()
    while True:
        taken.update(a.name for a in value.free if a not in axes)
        taken.update(a.name for a in value.bound)
        names: list[Axis] = []
        for a in axes:
            name = next(n for k in itertools.count() if (n := f"r{k}x{a.extent}") not in taken)
            taken.add(name)
            names.append(Axis(name, a.extent))
        if names == list(axes):
            return reduce(kind, tuple(names), value)
        value = substitute(value, dict(zip(axes, map(axis, names), strict=True)))
        axes = names
        if value.bound.isdisjoint(names):
            return reduce(kind, tuple(names), value)
        # Inner reductions have taken names that the renaming made free, so the names may change a second time.


def substitute(node: Node, mapping: Mapping[Axis, Node]) -> Node:
    """Returns `node` with free axes replaced, all at once, without capture."""
    mapping = {a: n for a, n in mapping.items() if a in node.free and not _is_axis(n, a)}
    if not mapping:
        return node
    incoming = frozenset().union(*(n.free for n in mapping.values()))
    done: dict[Node, Node] = {}
    opened: dict[Node, Node] = {}  # REDUCE -> the same with clashing bound axes renamed
    stack = [node]
    while stack:
        n = stack[-1]
        if n in done:
            stack.pop()
            continue
        if n.free.isdisjoint(mapping):
            done[n] = n
            stack.pop()
            continue
        if n.op is Op.AXIS:
            done[n] = mapping[n.arg]
            stack.pop()
            continue
        if n.op is Op.ADD and n.dtype is DType.I64:
            # A sum is replaced as a whole.
            terms, constant = index.terms_of(n)
            waiting = [t for t in terms if t not in done]
            if waiting:
                stack.extend(waiting)
                continue
            combined = index.replaced(terms, constant, done)
            if combined is not None:
                stack.pop()
                done[n] = combined
                continue
        renamed = n
        if n.op is Op.REDUCE:
            renamed = opened.get(n) or _open(n, mapping, incoming)
            opened[n] = renamed
        waiting = [s for s in renamed.srcs if s not in done]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        done[n] = rebuild(renamed, tuple([done[s] for s in renamed.srcs]))
    return done[node]


def _is_axis(node: Node, a: Axis) -> bool:
    return node.op is Op.AXIS and node.arg == a


def _open(n: Node, mapping: Mapping[Axis, Node], incoming: frozenset[Axis]) -> Node:
    clashing = [a for a in n.arg.axes if a in incoming or a in mapping]
    if not clashing:
        return n
    renaming = {a: Axis(f"t{next(_fresh)}x{a.extent}", a.extent) for a in clashing}
    value = substitute(n.srcs[0], {a: axis(b) for a, b in renaming.items()})
    return reduce(n.arg.kind, tuple(renaming.get(a, a) for a in n.arg.axes), value)


def transform(
    roots: Sequence[Node],
    visit: Callable[[Node], Node | None],
    skip: Callable[[Node], bool] | None = None,
) -> list[Node]:
    """Rebuilds `roots` from the leaves up.  `visit` may replace a node; its sources are rebuilt before, and
    the replacement is not visited again.  Nodes for which `skip` is true stay as they are, with everything
    below them."""
    done: dict[Node, Node] = {}
    stack = list(roots)
    while stack:
        n = stack[-1]
        if n in done:
            stack.pop()
            continue
        if skip is not None and skip(n):
            done[n] = n
            stack.pop()
            continue
        srcs = n.srcs
        waiting = [s for s in srcs if s not in done]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        built = n
        for s in srcs:
            if done[s] is not s:
                built = rebuild(n, tuple([done[s] for s in srcs]))
                break
        done[n] = visit(built) or built
    return [done[r] for r in roots]


def without_reductions(n: Node) -> bool:
    """The `skip` argument for a transform that changes only REDUCEs."""
    return not n.bound


def masked(node: Node, mask: Node, unsafe: frozenset[Axis]) -> Node:
    """Returns `node` with masks on the loads that depend on `unsafe` axes: they read nothing where `mask` is
    false."""

    def visit(n: Node) -> Node | None:
        if n.op is not Op.LOAD or n.free.isdisjoint(unsafe):
            return None
        inside = mask if len(n.srcs) == 1 else conjunction(n.srcs[1], mask)
        return Node(Op.LOAD, n.dtype, (n.srcs[0], inside), n.arg)

    # An axis of the mask must not be captured by a REDUCE inside.
    clashing = {a: Axis(f"t{next(_fresh)}x{a.extent}", a.extent) for a in mask.free & node.bound}
    mask = substitute(mask, {a: axis(b) for a, b in clashing.items()})
    return substitute(transform([node], visit)[0], {b: axis(a) for a, b in clashing.items()})


def rebuild(n: Node, srcs: tuple[Node, ...]) -> Node:
    """Returns `n` with other sources, in canonical form."""
    return n if srcs == n.srcs else canonical(n, srcs)


def canonical(n: Node, srcs: tuple[Node, ...]) -> Node:
    """Returns `n` with `srcs`, in the form that another rebuild does not change."""
    op = n.op
    if op is Op.REDUCE:
        folded = fold_reduction(n.arg.kind, n.arg.axes, srcs[0])
        return fold(n.arg.kind, n.arg.axes, srcs[0]) if folded is None else folded
    if n.dtype is DType.I64 and op in (Op.ADD, Op.MUL, Op.FLOORDIV, Op.MOD):
        if op is Op.ADD:
            return index.add(*srcs)
        if op is Op.MUL:
            return index.mul(*srcs)
        if (
            srcs[1].op is Op.CONST
            and surely_positive(srcs[1].arg)
            and index.bounds(srcs[0]) is not None
        ):
            divide = index.floordiv if op is Op.FLOORDIV else index.mod
            return divide(srcs[0], srcs[1].arg)
    elif op in COMPARES:
        return compare(op, srcs[0], srcs[1])
    elif op is Op.AND and n.dtype is DType.BOOL:
        return conjunction(*srcs)
    elif op is Op.WHERE:
        return select(srcs[0], srcs[1], srcs[2])
    elif op is Op.LOAD and len(srcs) == 2 and srcs[1].op is Op.CONST:
        if not srcs[1].arg:
            return const(0, n.dtype)
        srcs = srcs[:1]
    return Node(op, n.dtype, srcs, n.arg)


TRUE = const(True, DType.BOOL)
FALSE = const(False, DType.BOOL)


def compare(op: Op, a: Node, b: Node, ranges: index.Ranges | None = None) -> Node:
    """Returns a comparison node; a constant if the ranges of integers decide it."""
    if a.dtype.is_int:
        first, second = index.bounds(a, ranges), index.bounds(b, ranges)
        verdict = None
        if first is not None and second is not None:
            verdict = compare_ranges(op, first, second)
        if verdict is None:
            verdict = decide_by_cases(op, a, b)
        if verdict is not None:
            return TRUE if verdict else FALSE
    return Node(op, DType.BOOL, (a, b))


def fold_reduction(kind: str, axes: Sequence[Axis], value: Node) -> Node | None:
    """Returns the value of a reduction of a constant or of a condition on positions; None if only a call can
    tell it.  If a loop may be empty, the value must be the identity of the kind, which an empty loop
    gives."""
    runs = all(surely_positive(a.extent) for a in axes)
    if value.op is Op.CONST:
        if REDUCTIONS[kind].selects and (runs or value.arg == identity(kind, value.dtype)):
            return value
        return value if kind == "sum" and value.dtype.is_int and not value.arg else None
    return _fold_at_bounds(kind, axes, value) if runs else None


def _fold_at_bounds(kind: str, axes: Sequence[Axis], value: Node) -> Node | None:
    """Decides an any or all by the first or last position of loops: any(i >= r over r) is true for every i,
    because of r = 0; all(p) is false if p is false at such a position for every other position."""
    if not REDUCTIONS[kind].of_bools or value.op not in COMPARES or len(axes) > 2:
        return None
    if not value.srcs[0].dtype.is_int or next(loads([value]), None) is not None:
        return None
    for ends in itertools.product(*((0, a.extent - 1) for a in axes)):
        at = {a: index.index(end) for a, end in zip(axes, ends, strict=True)}
        result = substitute(value, at)
        if result.op is Op.CONST and result.arg is (REDUCTIONS[kind].op is Op.OR):
            return result
    return None


def conjunction(*conditions: Node) -> Node:
    """Returns the AND of conditions, without repeats and constants."""
    terms: dict[Node, None] = {}
    stack = list(conditions)[::-1]
    while stack:
        c = stack.pop()
        if c.op is Op.AND:
            stack.extend(reversed(c.srcs))
        elif c.op is not Op.CONST:
            terms[c] = None
        elif not c.arg:
            return FALSE
    if not terms:
        return TRUE
    total, *others = terms
    for c in others:
        total = Node(Op.AND, DType.BOOL, (total, c))
    return total


def select(condition: Node, a: Node, b: Node) -> Node:
    """Returns a WHERE; selections inside it that `condition` decides are removed."""
    if condition.op is Op.CONST:
        return a if condition.arg else b
    a = _assume(a, set(parts_of(condition)))
    opposite = negation(condition)
    b = _assume(b, {opposite})
    # In a chain of alternatives (a concatenation), each one gets the negation of this condition.
    chain: list[tuple[Node, Node]] = []
    last = b
    while last.op is Op.WHERE:
        c, value, last = last.srcs
        chain.append((c, _assume(value, {opposite, *parts_of(c)})))
    for c, value in reversed(chain):
        last = where(c, value, last)
    return where(condition, a, last) if a is not last else a


def _assume(value: Node, conditions: set[Node]) -> Node:
    while value.op is Op.WHERE:
        parts = parts_of(value.srcs[0])
        if all(p in conditions for p in parts):
            value = value.srcs[1]
        elif any(negation(p) in conditions for p in parts):
            value = value.srcs[2]
        else:
            break
    return value
