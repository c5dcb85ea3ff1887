"""Cuts the axes of a kernel where its index expressions change their form.

- `x // c` and `x % c` of an axis (a view that strides cannot express): the axis becomes two, and the division
  disappears. Axes of a reduction are handled in the same way.
- `x < c` of a store's axis (concatenation, padding, halves of a rotary embedding): the store becomes two, each
  on one side, so that neither needs a mask.

All stores are cut at the same places, so that they still share loops. layout.py merges axes again that are
contiguous in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from frameloom.codegen.schedule.layout import is_index, stride_along
from frameloom.ir.dtype import DType
from frameloom.ir.index import add, affine, mul, sub, terms_of
from frameloom.ir.node import Axis, Node, axis, const, index
from frameloom.ir.ops import COMPARES, Op
from frameloom.ir.program import Store
from frameloom.ir.substitute import canonical, fold, substitute, topological
from frameloom.ir.symbolic.compare import surely_positive
from frameloom.ir.symbolic.expr import Size, gcd

SHORTEST = 16  # positions of a contiguous part; if shorter, a masked vector is better than a loop
MAX_PARTS = 12  # maximum number of stores added to one kernel by cutting
CUTS = 16  # maximum number of axes cut into digits


def split(stores: Sequence[Store], least: float = 0.0) -> list[Store]:
    """Returns the same stores with axes cut. `least`: the minimum length of a part, as a fraction of the
    axis."""
    # Conditions first: within a part a division often has one value.
    result = [_simplified(s) for s in stores]
    while len(result) < len(stores) + MAX_PARTS and (cut := _threshold(result, least)) is not None:
        parts = [part for s in result for part in _split_at(s, *cut)]
        result = [s for s in parts if not s.copies_itself] or parts[:1]
    for _ in range(CUTS):
        division = _division(result)
        if division is None:
            break
        result = [_digits(s, *division) for s in result]
    return result


def _roots(stores: Iterable[Store]) -> list[Node]:
    return [n for s in stores for n in (s.offset, s.value)]


# --- divisions


def _division(stores: Sequence[Store]) -> tuple[Axis, int] | None:
    """Returns an axis and the length of the digit to cut it into."""
    for n in topological(_roots(stores)):
        if n.op not in (Op.FLOORDIV, Op.MOD) or not is_index(n) or n.srcs[1].op is not Op.CONST:
            continue
        divisor = n.srcs[1].arg
        terms, _ = terms_of(n.srcs[0])
        for term, factor in terms.items():
            if term.op is not Op.AXIS or not surely_positive(divisor):
                continue
            digit = divisor // gcd(factor, divisor)
            if isinstance(divisor, Size) or isinstance(digit, Size):
                continue  # the digit may be 1
            if isinstance(term.arg.extent, Size):
                if digit > 1 and term.arg.extent % digit == 0:
                    return term.arg, digit
                continue
            if 1 < digit < term.arg.extent and term.arg.extent % digit == 0:
                return term.arg, digit
    return None


def _digits(store: Store, a: Axis, digit: int) -> Store:
    high, low = Axis(f"{a.name}h", a.extent // digit), Axis(f"{a.name}l{digit}", digit)
    position = add(mul(axis(high), index(digit)), axis(low))

    def visit(n: Node) -> Node | None:
        if n.op is not Op.REDUCE or a not in n.arg.axes:
            return None
        axes = tuple(x for b in n.arg.axes for x in ((high, low) if b == a else (b,)))
        return fold(n.arg.kind, axes, substitute(n.srcs[0], {a: position}))

    store = store.transformed(visit, lambda n: a not in n.bound)
    if a not in store.axes:
        return store
    axes = tuple(x for b in store.axes for x in ((high, low) if b == a else (b,)))
    return _with_position(store, axes, a, position)


def _with_position(store: Store, axes: tuple[Axis, ...], a: Axis, position: Node) -> Store:
    offset, value = (substitute(n, {a: position}) for n in (store.offset, store.value))
    return Store(store.buffer, offset, value, axes).transformed(_fold_logic)


def _simplified(store: Store) -> Store:
    """Brings every node into the form that it gets after renaming axes: the set of axes that a node depends
    on must not change later."""

    def visit(n: Node) -> Node | None:
        return _fold_logic(n) or canonical(n, n.srcs)

    return store.transformed(visit)


def _fold_logic(n: Node) -> Node | None:
    """Folds NOT and OR of constants."""
    if n.dtype is not DType.BOOL:
        return None
    if n.op is Op.NOT and n.srcs[0].op is Op.CONST:
        return const(not n.srcs[0].arg, DType.BOOL)
    if n.op is Op.OR:
        for s, other in (n.srcs, n.srcs[::-1]):
            if s.op is Op.CONST:
                return s if s.arg else other
    return None


# --- thresholds


def _threshold(stores: Sequence[Store], least: float) -> tuple[Axis, int] | None:
    """Returns an axis of a store and a position at which a condition on it changes."""
    for s in stores:
        for n in topological((s.offset, s.value)):
            if n.op not in COMPARES or n.op in (Op.EQ, Op.NE) or n.srcs[0].dtype is not DType.I64:
                continue
            form = affine(sub(n.srcs[0], n.srcs[1]))
            if form is None or len(form[0]) != 1:
                continue
            if any(isinstance(n, Size) for n in (form[1], *form[0].values())):
                continue
            ((a, factor),) = form[0].items()
            # true on one side of: factor * x + constant < 0
            constant = form[1] - (1 if n.op in (Op.LE, Op.GT) else 0)
            at = -(constant // factor) if factor > 0 else constant // -factor + 1
            if (
                a in s.axes
                and not isinstance(a.extent, Size)
                and 0 < at < a.extent
                and _long_enough(stores, a, at, least)
            ):
                return a, at
    return None


def _long_enough(stores: Sequence[Store], a: Axis, at: int, least: float) -> bool:
    if min(at, a.extent - at) < least * a.extent:
        return False
    contiguous = any(a in s.axes and stride_along(s.offset, a) == 1 for s in stores)
    return not contiguous or min(at, a.extent - at) >= SHORTEST


def _split_at(store: Store, a: Axis, at: int) -> list[Store]:
    if a not in store.axes:
        return [store]
    parts = []
    for start, extent in ((0, at), (at, a.extent - at)):
        part = Axis(f"{a.name}f{start}", extent)
        axes = tuple(part if b == a else b for b in store.axes)
        position = add(axis(part), index(start))
        parts.append(_with_position(store, axes, a, position))
    return parts
