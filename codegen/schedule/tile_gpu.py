"""A launch: one kernel of the form of partition.py as reductions and stores over two groups of axes, and its
blocks.

Every block has a tile of positions. A tile has one or two dimensions. Each is a range of positions of a group
of axes, counted as one number (the last axis fastest):

    pointwise, one fast axis       tile (outer)
    pointwise, two fast axes       tile (y, x): tensors that are contiguous along one are read in square
                                   tiles
    pointwise, work per row or     tile (y, x): values that depend on one of them are computed once for all of
      column                       the other, such as the scale of every channel
    pointwise, short rows          tile (y, x): x is what one thread reads at once, y the number of such a run
    reductions                     tile (outer, inner); with one outer position per block just (inner)

The tile holds all of `inner` (*persistent*) if it fits into registers. Otherwise a loop iterates over it:
once per stage of reductions and once for the stores. If the extent of `inner` is dynamic, its hint decides; a
call with a longer `inner` than the tile holds uses a loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from frameloom.codegen.schedule.cost import cost, count, size
from frameloom.codegen.schedule.layout import coalesce, is_index, place_in, stride_along
from frameloom.codegen.schedule.partition import iteration_domain
from frameloom.codegen.schedule.sink import Sink
from frameloom.codegen.schedule.split_reduction import reductions
from frameloom.codegen.triton.chip import Chip
from frameloom.ir.cumulative import prefix
from frameloom.ir.index import add, mul
from frameloom.ir.node import Axis, Node, Reduce, axis, index, load
from frameloom.ir.ops import Op
from frameloom.ir.passes.sink_checks import bad_positions
from frameloom.ir.program import Buffer, Kernel, Kind, Scatter, Store
from frameloom.ir.scatter import guard, guarded, is_scatter
from frameloom.ir.substitute import TRUE, loads, substitute, topological, transform
from frameloom.ir.symbolic.compare import at_most, divides, require
from frameloom.ir.symbolic.expr import Int, Size, hint_of

POINTWISE = 1024  # positions of a block
SHARED = 10.0  # minimum cost of values that depend on rows or columns alone, for a tile of both
WASTE = 1.15  # maximum positions of such tiles per position that exists
VECTOR = 16  # bytes that a thread reads at once
SHORTEST = 128  # minimum held positions of `inner` if its extent is dynamic
SPARE = 1 / 12  # maximum share of a row of blocks that may be empty
TILE_SIDE = 64  # side of a tile for accesses in both directions; half of it for wide elements
HELD = 16384  # positions of `inner` that a block keeps in registers
STEP = 2048  # positions of one step of a loop over `inner`
COLUMNS = 128  # outer positions of a block if neighbours are contiguous
AHEAD = 4  # steps of such a loop whose loads are in flight
FEW = 16  # positions of `inner`, in such a block


@dataclass(eq=False, slots=True)
class Fold:
    """A reduction of `value` over the inner axes. `result` is the leaf that represents it in other values;
    `stage` is greater than that of every fold in `value`. `arg`: the axes are in the order in which argmax
    counts."""

    arg: Reduce
    value: Node
    result: Node
    stage: int
    scan: bool = False  # cumulative: `result` is the running value at every inner position

    @property
    def op(self) -> Op:
        """What combines two values."""
        return self.arg.op(self.value.dtype)


@dataclass(eq=False, slots=True)
class Dimension:
    """One dimension of the tile: `axes` counted as one number up to `extent`, `block` positions at a time."""

    name: str
    axes: tuple[Axis, ...]
    block: int

    @property
    def extent(self) -> Int:
        return size(self.axes)

    @property
    def blocks(self) -> Int:
        return (self.extent + self.block - 1) // self.block

    @property
    def exact(self) -> bool:
        return divides(self.block, self.extent)


@dataclass(eq=False, slots=True)
class Launch:
    """`parallel`: dimensions that the grid covers; `inner`: the dimension that is reduced, or None."""

    parallel: list[Dimension]
    inner: Dimension | None
    folds: list[Fold]
    stores: list[Store]
    persistent: bool = True
    warps: int = 4
    stages: int = 1
    buffers: tuple[Buffer, ...] = field(default=())

    @property
    def longer(self) -> Launch | None:
        """The same launch with a loop over `inner`, on the same grid, if `inner` may be longer than what the
        tile holds."""
        r = self.inner
        if r is None or not self.persistent or at_most(r.extent, r.block):
            return None
        step = max(2, min(r.block, STEP))
        return replace(self, inner=replace(r, block=step), persistent=False, stages=1)

    @property
    def grid(self) -> Int:
        return math.prod(d.blocks for d in self.parallel)


def plan(kernel: Kernel, chip: Chip) -> Launch:
    """Returns the launch of a kernel that partition.py made."""
    buffers = _buffers(kernel)
    if is_scatter(kernel):
        kernel = _with_flags_set(kernel)
    folds, stores, outer, inner = _unified(kernel)
    folds, stores, outer, inner = _coalesced(folds, stores, outer, inner)
    outer, inner = _sorted_by_stride(folds, stores, outer), _sorted_by_stride(folds, stores, inner)
    if folds:
        launch = _with_inner(outer, inner, folds, stores, chip)
    else:
        launch = _pointwise(outer + inner, stores, chip)
    launch.buffers = buffers
    return launch


def _with_flags_set(kernel: Kernel) -> Kernel:
    """Returns a scatter's kernel with its checks turned into scatters, which set the flag if a position is
    bad."""
    first, *flags = kernel.stores
    stores = [first]
    for f in flags:
        bad = bad_positions(f, first)
        assert bad is not None
        set_ = Scatter("set", first.axes)
        stores.append(Store(f.buffer, guard(bad, f.offset), TRUE, first.axes, set_))
    return replace(kernel, stores=(*stores[1:], first))


def _buffers(kernel: Kernel) -> tuple[Buffer, ...]:
    buffers: dict[Buffer, None] = {}
    for s in kernel.stores:
        buffers |= dict.fromkeys(n.arg for n in loads((s.offset, s.value)))
        buffers[s.buffer] = None
    return tuple(buffers)


def is_result(n: Node) -> bool:
    """Whether `n` is a leaf that represents a reduction."""
    return n.op is Op.LOAD and n.arg.name.startswith("fold:")


# --- one set of names


def _unified(
    kernel: Kernel,
) -> tuple[list[Fold], list[Store], tuple[Axis, ...], tuple[Axis, ...]]:
    forms = [iteration_domain(s) for s in kernel.stores]
    main = max(forms, key=lambda f: (len(f.inner) > 0, count(f.outer) * count(f.inner)))
    outer = tuple(Axis(f"x{k}", a.extent) for k, a in enumerate(main.outer))
    inner = tuple(Axis(f"r{k}", a.extent) for k, a in enumerate(main.inner))
    fold_of: dict[tuple[str, bool, Node], Fold] = {}
    stores = []
    for s, f in zip(kernel.stores, forms, strict=True):
        names = dict(zip((*f.outer, *f.inner), map(axis, (*outer, *inner)), strict=False))
        offset, value = (substitute(n, names) for n in (s.offset, s.value))
        offset, value = _leaves((offset, value), outer, inner, fold_of)
        axes = tuple(names[a].arg for a in s.axes)
        stores.append(replace(s, offset=offset, value=value, axes=axes))
    return list(fold_of.values()), stores, outer, inner


def _leaves(
    roots: Sequence[Node],
    outer: tuple[Axis, ...],
    inner: tuple[Axis, ...],
    fold_of: dict[tuple[str, bool, Node], Fold],
) -> list[Node]:
    """Returns `roots` with leaves for the reductions, and adds their folds to `fold_of`."""
    roots = list(roots)
    while reduce_nodes := reductions(roots):
        r = reduce_nodes[0]
        prefix_scan = prefix(r)
        scan = prefix_scan is not None and prefix_scan.along in inner
        source = prefix_scan.value if scan and prefix_scan is not None else r.srcs[0]
        value = substitute(source, dict(zip(r.arg.axes, map(axis, inner), strict=True)))
        fold = fold_of.get((r.arg.kind, scan, value))
        if fold is None:
            stage = 1 + max(
                (f.stage for f in fold_of.values() for n in topological([value]) if n is f.result),
                default=-1,
            )
            over = (*outer, *inner) if scan else outer
            shape = tuple(a.extent for a in over)
            buffer = Buffer(f"fold:{len(fold_of)}", r.dtype, shape, (), Kind.TEMP)
            leaf = load(buffer, place_in(over))
            fold = Fold(Reduce(r.arg.kind, inner), value, leaf, stage, scan)
            fold_of[r.arg.kind, scan, value] = fold
        leaf = fold.result
        roots = transform(roots, lambda n, r=r, leaf=leaf: leaf if n is r else None)
    return roots


def _coalesced(
    folds: list[Fold], stores: list[Store], outer: tuple[Axis, ...], inner: tuple[Axis, ...]
) -> tuple[list[Fold], list[Store], tuple[Axis, ...], tuple[Axis, ...]]:
    goals = [Sink((*outer, *inner), f.value, positions=f.arg.axes) for f in folds]
    goals += [Sink((*outer, *inner), s.value, s.buffer, s.offset) for s in stores]
    # The leaf of a fold depends on all outer axes, so it is merged with the rest.
    goals += [Sink((*outer, *inner), f.result) for f in folds]
    goals, outer = coalesce(goals, outer)
    for f, g in zip(folds, goals, strict=False):
        g.reduction = Node(Op.REDUCE, f.result.dtype, (f.value,), f.arg)
    goals, inner = coalesce(goals, inner)
    for f, g, r in zip(folds, goals, goals[len(goals) - len(folds) :], strict=False):
        f.value, f.result, f.arg = g.value, r.value, Reduce(f.arg.kind, g.positions)
    done = []
    for s, g in zip(stores, goals[len(folds) :], strict=False):
        # All positions of a scatter count, also those that its offset does not depend on.
        axes = tuple(a for a in (*outer, *inner) if s.scatter is not None or a in g.offset.free)
        done.append(replace(s, offset=g.offset, value=g.value, axes=axes))
    return folds, done, outer, inner


# --- contiguous accesses


def accesses(folds: Sequence[Fold], stores: Sequence[Store]) -> list[tuple[Node, int]]:
    """(offset, bytes) of every load and store."""
    roots = [f.value for f in folds] + [n for s in stores for n in (s.value, s.offset)]
    loads = [
        (n.srcs[0], n.dtype.bytes)
        for n in topological(roots)
        if n.op is Op.LOAD and not is_result(n)
    ]
    return loads + [
        (s.offset if s.scatter is None else guarded(s.offset)[1], s.buffer.dtype.bytes)
        for s in stores
    ]


def _sorted_by_stride(
    folds: Sequence[Fold], stores: Sequence[Store], axes: tuple[Axis, ...]
) -> tuple[Axis, ...]:
    """Sorts axes: the one along which most bytes are contiguous comes last, large strides first."""
    memory_ops = accesses(folds, stores)
    whole = sum(width * count(offset.free) for offset, width in memory_ops)

    def key(a: Axis) -> tuple[float, float]:
        near = reach = 0.0
        for offset, width in memory_ops:
            along = stride_along(offset, a)
            if along is not None:
                work = width * count(offset.free)
                near += work if abs(hint_of(along)) == 1 else 0
                reach += work * abs(hint_of(along))
        # Contiguity of a small part of the bytes does not justify large strides in the rest.
        return (near if near >= whole / 16 else 0.0), -reach

    return tuple(sorted(axes, key=key))


def _contiguous(memory_ops: Sequence[tuple[Node, int]], a: Axis) -> int:
    """Returns the bytes accessed with stride 1 along `a`."""
    return sum(w * count(offset.free) for offset, w in memory_ops if _is_contiguous(offset, a))


def _is_contiguous(offset: Node, a: Axis) -> bool:
    along = stride_along(offset, a)
    return along is not None and abs(hint_of(along)) == 1


# --- blocks


def power(n: int) -> int:
    """Returns the least power of two that is at least `n`."""
    return 1 << max(0, n - 1).bit_length()


def _pointwise(axes: tuple[Axis, ...], stores: list[Store], chip: Chip) -> Launch:
    total = count(axes)
    memory_ops = accesses((), stores)
    tile_axes = _square_axes(axes, memory_ops)
    if tile_axes is not None:
        other, fast = tile_axes
        wide = max(width for _, width in memory_ops) > 2
        y = Dimension("y", (*(a for a in axes if a not in (other, fast)), other), 1)
        x = Dimension("x", (fast,), min(TILE_SIDE, power(hint_of(fast.extent))))
        y.block = min(TILE_SIDE // 2 if wide else TILE_SIDE, power(hint_of(other.extent)))
        return Launch([y, x], None, [], stores, warps=8 if y.block * x.block > 2048 else 4)
    if (tile := _reuse_tile(axes, stores, chip)) is not None:
        return Launch(tile, None, [], stores, warps=4)
    block = min(POINTWISE, max(32, power(-(-total // chip.multiprocessors))))
    warps = max(1, min(4, block // 128))
    fast = hint_of(axes[-1].extent) if len(axes) > 1 else 0
    if fast and -(-fast // block) * block <= fast * (1 + SPARE):
        # A block computes once what depends on the row alone.
        rows, row = Dimension("y", axes[:-1], 1), Dimension("x", axes[-1:], block)
        return Launch([rows, row], None, [], stores, warps=warps)
    lanes = VECTOR // max(width for _, width in memory_ops)
    if fast > lanes > 1 and divides(lanes, axes[-1].extent):
        return _vectorised_launch(axes, lanes, block // lanes, stores, warps)
    return Launch([Dimension("x", axes, block)], None, [], stores, warps=warps)


def _vectorised_launch(
    axes: tuple[Axis, ...], lanes: int, block: int, stores: Sequence[Store], warps: int
) -> Launch:
    """Makes a launch in which one division (to find the position on the axes) serves all that a thread reads
    at once."""
    *rest, fast = axes
    high, low = Axis(f"{fast.name}h", fast.extent // lanes), Axis(f"{fast.name}l", lanes)
    place = {fast: add(mul(axis(high), index(lanes)), axis(low))}
    split_stores = []
    for s in stores:
        spread = tuple(x for a in s.axes for x in ((high, low) if a == fast else (a,)))
        offset, value = substitute(s.offset, place), substitute(s.value, place)
        split_stores.append(replace(s, offset=offset, value=value, axes=spread))
    y = Dimension("y", (*rest, high), block)
    return Launch([y, Dimension("x", (low,), lanes)], None, [], split_stores, warps=warps)


def _square_axes(
    axes: tuple[Axis, ...], memory_ops: Sequence[tuple[Node, int]]
) -> tuple[Axis, Axis] | None:
    """Returns (other, fast) if a large part of the bytes is contiguous along `other` and not along the fast
    axis."""
    if len(axes) < 2:
        return None
    fast = axes[-1]
    bytes_of = {a: 0.0 for a in axes[:-1]}
    for offset, width in memory_ops:
        along = stride_along(offset, fast)
        if along is not None and abs(hint_of(along)) > 1:
            for a in bytes_of:
                if _is_contiguous(offset, a):
                    bytes_of[a] += width * count(offset.free)
    other = max(bytes_of, key=lambda a: bytes_of[a])
    most = max(width for _, width in memory_ops) * count(axes)
    if bytes_of[other] < most / 4 or min(hint_of(other.extent), hint_of(fast.extent)) < 8:
        return None
    return other, fast


def _reuse_tile(
    axes: tuple[Axis, ...], stores: Sequence[Store], chip: Chip
) -> list[Dimension] | None:
    """Returns rows and columns of a tile if its positions can share a large part of the work; else None."""
    if len(axes) < 2 or count(axes) < 4 * POINTWISE * chip.multiprocessors:
        return None
    *rest, fast = axes
    rows, columns = frozenset(rest), frozenset((fast,))
    values = topological([s.value for s in stores])
    shared = [n for n in values if n.free and (n.free <= rows or n.free <= columns)]
    if cost(n for n in shared if not is_index(n)) < SHARED:
        return None
    extent = hint_of(fast.extent)
    fits = [b for b in (256, 128, 64, 32, 16, 8) if -(-extent // b) * b <= WASTE * extent]
    if not fits:
        return None
    y = Dimension("y", tuple(rest), 4 * POINTWISE // fits[0])
    return [y, Dimension("x", (fast,), fits[0])]


def _with_inner(
    outer: tuple[Axis, ...],
    inner: tuple[Axis, ...],
    folds: list[Fold],
    stores: list[Store],
    chip: Chip,
) -> Launch:
    rows, length = count(outer), count(inner)
    memory_ops = accesses(folds, stores)
    whole = any(f.scan for f in folds)
    outer_reduction = False
    if rows > 1:
        outer_reduction = _contiguous(memory_ops, outer[-1]) > _contiguous(memory_ops, inner[-1])
    if outer_reduction:
        columns = min(COLUMNS, power(rows))
        while columns > 16 and -(-rows // columns) < 2 * chip.multiprocessors:
            columns //= 2
        while whole and columns > 1 and power(length) * columns > HELD:
            columns //= 2
        few = min(FEW, power(length))
        persistent = whole or power(length) * columns <= HELD // 2
        if persistent:
            few = power(length)
        x, r = Dimension("x", outer, columns), Dimension("r", inner, few)
    else:
        persistent = whole or length <= HELD
        r = Dimension("r", inner, power(length) if persistent else STEP)
        if persistent and isinstance(r.extent, Size):
            r.block = max(r.block, SHORTEST)
        together = max(1, min(power(rows), 1024 // r.block))
        while together > 1 and -(-rows // together) < 4 * chip.multiprocessors:
            together //= 2
        x = Dimension("x", outer, together)
    if whole:  # a scan has no loop: longer ones are compiled again
        require(bool(r.extent <= r.block), "a scan is longer than its block")
    tile = x.block * r.block
    least = 1 if outer_reduction and not persistent else 4
    warps = max(1, min(least, tile // 128), min(16, tile // 1024))
    # Rows are loaded a few steps ahead. Columns have enough blocks to hide the latency.
    stages = 1 if persistent or outer_reduction else AHEAD
    return Launch([x], r, folds, stores, persistent, warps, stages)
