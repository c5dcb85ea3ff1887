"""Long reductions with few results: many blocks reduce chunks, and another reduction combines the chunks.

    sum over k of v       ->  sum over c of (sum over the k of chunk c of v)
    sum of (v - g)**2     ->  sum over c of (own + n * (mean - g)**2), where `mean` and `own` are the chunk's
                              mean and its sum of (v - mean)**2: one loop over v although g depends on all of
                              it.  (Chan, Golub, LeVeque: "Algorithms for computing the sample variance", 1983.)

Chunks are whole positions of leading axes, so that the loads inside keep their form. An axis without a good
divisor is cut with a mask at its end.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

from frameloom.codegen.schedule.cost import count, size
from frameloom.codegen.schedule.layout import coalesce, stride_along
from frameloom.codegen.schedule.sink import Sink
from frameloom.codegen.triton.chip import Chip
from frameloom.ir.cumulative import prefix
from frameloom.ir.dtype import DType
from frameloom.ir.index import add, mul, sub
from frameloom.ir.node import Axis, Node, axis, binary, cast, const, index
from frameloom.ir.ops import Op
from frameloom.ir.program import Store
from frameloom.ir.reductions import identity
from frameloom.ir.substitute import (
    fold,
    loads,
    masked,
    substitute,
    transform,
    without_reductions,
)
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Int, Size, hint_of

Materialise = Callable[[Node, Sequence[Axis]], Node]

LEAST = 1 << 15  # elements; a smaller reduction ends before a second launch would start
CHUNK = 2048  # minimum elements that a block should reduce
WAVES = 8  # target number of blocks per multiprocessor
COLUMNS = 128  # neighbouring results that one block computes if they are contiguous in memory
MANY = 8  # maximum factor above the wanted number of chunks, if whole positions are chunks
HELD = 16384  # elements of a chunk, so that it stays in registers for a second loop


def split_reductions(store: Store, chip: Chip, materialise: Materialise) -> Store:
    """Returns `store` with every reduction that needs it reduced in chunks; `materialise` stores the
    parts."""
    roots = [store.offset, store.value]
    # From outside: the pattern of a sum of squares must be seen before the reduction that it depends on is
    # cut.
    while (
        n := next((r for r in reductions(roots)[::-1] if chunks(r, chip) > 1), None)
    ) is not None:
        outer = ordered(n.free, store.axes)
        flat = _flat(n)
        if flat is not n:
            replacement = flat
        elif len(outer) < len(store.axes):
            replacement = materialise(n, outer)
        else:
            replacement = _Split(n, chunks(n, chip), outer, materialise).result()
        roots = transform(roots, {n: replacement}.get, without_reductions)
    return replace(store, offset=roots[0], value=roots[1])


def _flat(n: Node) -> Node:
    """Merges axes of `n` that are contiguous in memory, if an extent is dynamic. Then chunks need not be
    whole positions of the first axis."""
    (value,), axes = n.srcs, n.arg.axes
    if value.bound or not any(isinstance(a.extent, Size) for a in axes):
        return n
    (goal,), merged = coalesce([Sink(axes, value)], axes)
    return fold(n.arg.kind, merged, goal.value) if len(merged) < len(axes) else n


def chunks(n: Node, chip: Chip) -> int:
    """Returns the best number of chunks for the reduction; 1 means not to cut it."""
    total, results = count(n.arg.axes), count(n.free)
    if n.arg.row.position or prefix(n) is not None or total * results < LEAST or total < COLUMNS:
        return 1
    outer_reduction = is_outer_reduction(n)
    blocks = -(-results // COLUMNS) if outer_reduction else results
    if blocks >= 2 * chip.multiprocessors:
        return 1
    wanted = max(-(-WAVES * chip.multiprocessors // blocks), -(-total // HELD))
    most = total * (COLUMNS if outer_reduction else 1) // CHUNK
    return max(1, min(wanted, most))


_OUTER_REDUCTION: weakref.WeakKeyDictionary[Node, bool] = weakref.WeakKeyDictionary()


def is_outer_reduction(n: Node) -> bool:
    """Whether most of the input is contiguous along the results, not along the reduced axes (cached per
    node)."""
    cached = _OUTER_REDUCTION.get(n)
    if cached is None:
        cached = _OUTER_REDUCTION[n] = _compute_outer_reduction(n)
    return cached


def _compute_outer_reduction(n: Node) -> bool:
    weights = {True: 0, False: 0}
    for m in loads(n.srcs):
        for a in m.srcs[0].free:
            along = stride_along(m.srcs[0], a)
            if along is not None and hint_of(along) == 1 and hint_of(a.extent) >= 8:
                weights[a in n.free] += m.dtype.bytes * count(m.srcs[0].free)
    return weights[True] > weights[False]


def _centre(n: Node) -> tuple[Node, Node] | None:
    """Returns (v, g) of a sum of (v - g)**2 where g is the same for all elements and depends on a reduction;
    else None."""
    value = n.srcs[0]
    if n.arg.kind != "sum" or value.op is not Op.MUL or value.srcs[0] is not value.srcs[1]:
        return None
    difference = value.srcs[0]
    if difference.op is not Op.SUB or not difference.dtype.is_float:
        return None
    v, g = difference.srcs
    own = frozenset(n.arg.axes)
    if own.isdisjoint(v.free) or not own.isdisjoint(g.free) or not g.bound or v.bound:
        return None
    return v, g


class _Split:
    """One reduction cut into about `count` chunks. `outer`: its free axes."""

    def __init__(
        self, n: Node, count: int, outer: Sequence[Axis], materialise: Materialise
    ) -> None:
        self.n = n
        self.outer = tuple(outer)
        self.materialise = materialise
        self.chunk: list[Axis] = []
        self.inner: list[Axis] = []
        self.positions: dict[Axis, Node] = {}
        self.mask: Node | None = None
        self._cut(count)

    def _cut(self, count: int) -> None:
        left = count
        for k, a in enumerate(self.n.arg.axes):
            if left <= 1:
                self.inner.append(a)
            elif hint_of(a.extent) <= left or self._whole_positions(k, left):
                self.chunk.append(a)
                left = -(-left // hint_of(a.extent))
            else:
                length, parts = _lengths(a.extent, left)
                high, low = Axis(f"c{k}x{parts}", parts), Axis(f"d{k}x{length}", length)
                position = add(mul(axis(high), index(length)), axis(low))
                self.positions[a] = position
                if not same(parts * length, a.extent):
                    self.mask = binary(Op.LT, position, index(a.extent))
                self.chunk.append(high)
                if length > 1:
                    self.inner.append(low)
                else:
                    self.positions[a] = axis(high)
                left = 1

    def _whole_positions(self, k: int, left: int) -> bool:
        """Whether every position of the `k`-th axis, whose extent is dynamic, becomes a chunk, so that no
        mask is needed."""
        extent = self.n.arg.axes[k].extent
        rest = count(self.n.arg.axes[k + 1 :])
        return isinstance(extent, Size) and extent.hint <= MANY * left and rest >= CHUNK

    def result(self) -> Node:
        """Returns the reduction over the chunks' results."""
        kind = self.n.arg.kind
        centre = _centre(self.n)
        if centre is not None:
            return self._centred(*centre)
        value = self._known(self.n.srcs[0])
        return fold(kind, self.chunk, self._part(kind, value))

    def _known(self, value: Node) -> Node:
        """Replaces reductions that the value depends on by loads of their stored results."""
        while value.bound:
            r = next(r for r in reductions([value]) if r.bound == frozenset(r.arg.axes))
            read = self.materialise(r, [a for a in self.outer if a in r.free])
            (value,) = transform([value], {r: read}.get, without_reductions)
        return value

    def _part(self, kind: str, value: Node) -> Node:
        """Returns a load of the chunks' results of reducing `value`."""
        return self.materialise(fold(kind, self.inner, self._moved(kind, value)), self._axes)

    @property
    def _axes(self) -> tuple[Axis, ...]:
        # Neighbouring results of one block are neighbours in memory.
        if is_outer_reduction(self.n):
            return (*self.chunk, *self.outer)
        return (*self.outer, *self.chunk)

    def _moved(self, kind: str, value: Node) -> Node:
        """Returns `value` at the positions of a chunk; past the end, the neutral element of the reduction."""
        return self._or_identity(kind, self._masked(substitute(value, self.positions)))

    def _masked(self, value: Node) -> Node:
        return value if self.mask is None else masked(value, self.mask, self.mask.free)

    def _or_identity(self, kind: str, value: Node) -> Node:
        if self.mask is None:
            return value
        neutral = const(identity(kind, value.dtype), value.dtype)
        return Node(Op.WHERE, value.dtype, (self.mask, value, neutral))

    def _count(self, dtype: DType) -> Node:
        """Returns the number of elements of a chunk."""
        if self.mask is None:
            return const(size(self.inner), dtype)
        position, end = self.mask.srcs
        (low,) = position.free.intersection(self.inner)
        first = substitute(position, {low: index(0)})
        inside = binary(Op.MIN, index(low.extent), sub(end, first))
        return cast(dtype, mul(inside, index(size(a for a in self.inner if a != low))))

    def _centred(self, v: Node, g: Node) -> Node:
        moved = self._masked(substitute(v, self.positions))
        count = self._count(v.dtype)
        total = fold("sum", self.inner, self._moved("sum", v))
        mean = binary(Op.DIV, total, count)
        deviation = binary(Op.SUB, moved, mean)
        square = binary(Op.MUL, deviation, deviation)
        own = fold("sum", self.inner, self._or_identity("sum", square))
        squares = self.materialise(own, self._axes)
        mean = binary(Op.DIV, self.materialise(total, self._axes), count)
        (g,) = transform([g], self._whole(v), without_reductions)
        away = binary(Op.SUB, mean, g)
        between = binary(Op.MUL, count, binary(Op.MUL, away, away))
        return fold("sum", self.chunk, binary(Op.ADD, squares, between))

    def _whole(self, v: Node) -> Callable[[Node], Node | None]:
        """Returns a function that replaces sums of `v` itself by sums of the chunks' sums."""

        def visit(n: Node) -> Node | None:
            if n.op is Op.REDUCE and n.arg.kind == "sum" and n.free == self.n.free:
                names = dict(zip(n.arg.axes, map(axis, self.n.arg.axes), strict=False))
                same = [a.extent for a in n.arg.axes] == [a.extent for a in self.n.arg.axes]
                if same and substitute(n.srcs[0], names) is v:
                    return fold("sum", self.chunk, self._part("sum", v))
            return None

        return visit


def reductions(roots: Sequence[Node]) -> list[Node]:
    """Returns every REDUCE below `roots`, inner ones first."""
    reduce_nodes: list[Node] = []
    seen: set[Node] = set()
    # Like `topological`, but skips nodes that contain no reduction.
    stack: list[Node | tuple[Node]] = [*list(roots)[::-1]]
    while stack:
        n = stack.pop()
        if isinstance(n, tuple):
            reduce_nodes.append(n[0])
        elif n.bound and n not in seen:
            seen.add(n)
            if n.op is Op.REDUCE:
                stack.append((n,))
            stack.extend(n.srcs[::-1])
    return reduce_nodes


def ordered(axes: frozenset[Axis], like: Sequence[Axis]) -> tuple[Axis, ...]:
    """Returns `axes`: those of `like` first and in its order."""
    known = tuple(a for a in like if a in axes)
    return (*known, *sorted(axes.difference(known), key=lambda a: a.name))


def _lengths(extent: Int, wanted: int) -> tuple[Int, Int]:
    """Returns the length of the chunks of an axis, and their number. If the extent is dynamic, the length is
    fixed and the number is dynamic."""
    if isinstance(extent, Size):
        length = 1 << (extent.hint // wanted).bit_length() - 1
        return length, (extent + length - 1) // length
    parts = _divisor(extent, wanted)
    if parts is None:
        length = -(-extent // wanted)
        parts = -(-extent // length)
    return -(-extent // parts), parts


def _divisor(extent: int, wanted: int) -> int | None:
    """A divisor of `extent` from `wanted` to four times that."""
    return next((d for d in range(wanted, min(4 * wanted, extent) + 1) if extent % d == 0), None)
