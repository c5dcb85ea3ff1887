"""Choices for a loop tree: which axis becomes lanes, the order of loops, unrolling, threads, row buffers.

The axis of lanes is the one along which most bytes are contiguous.  It may be an axis of an outer pass: then all that
is inside works on as many neighbours at once as there are lanes (a sum of columns, a softmax over dim 0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from frameloom.codegen.cost import size, weight
from frameloom.codegen.layout import is_index, stride
from frameloom.codegen.looptree import Accumulate, Assign, Pass, Row, Transposed, Tree
from frameloom.codegen.vector import Isa
from frameloom.ir.dtype import DType
from frameloom.ir.index import bounds
from frameloom.ir.node import Axis, Node
from frameloom.ir.ops import Op

Item = Pass | Assign | Accumulate

PARALLEL_WORK = 500_000  # in cost units, about ten microseconds; waking the pool costs one, or more on a busy machine
ROWS_ENOUGH = 16  # work items that are worth a parallel loop of their own
CHUNKS = 64  # partial results of a parallel fold; part of the result's rounding, so never the thread count
BLOCK = 4096  # positions of the lane axis in one work item, at least
STRIDED = 0.2  # speed of gathering lanes one by one, against a contiguous load
PARTIAL = 0.5  # speed of a part of a vector, beyond the lanes that it lacks
ROW = 16  # positions that cost as much as starting a loop inside another
ACROSS = (
    32  # positions that cost as much as folding the lanes of an accumulator at the end of a row
)
SQUARES = 64  # positions across the lanes in one block of transposed squares
ROW_BYTES = (
    128 << 10
)  # of all row buffers of a block: a part of the second-level cache, and of a thread's stack
KEEP_COST = 8.0  # a value that costs more than this is kept for a later pass


def finish(tree: Tree, isa: Isa) -> None:
    """Fills in the choices of every pass of `tree`."""
    _lanes(tree.body, isa)
    _parallel(tree.body, 1)
    _keep(tree.body, 1)


# --- what is inside a pass


def leaves(body: Sequence[Item]) -> Iterator[Pass]:
    for item in body:
        if isinstance(item, Pass):
            if any(isinstance(i, Pass) for i in item.body):
                yield from leaves(item.body)
            else:
                yield item


def items(body: Sequence[Item]) -> Iterator[Assign | Accumulate]:
    for item in body:
        if isinstance(item, Pass):
            yield from items(item.body)
        else:
            yield item


def nodes(body: Sequence[Item]) -> list[Node]:
    """Every node computed inside; finished reductions count as leaves."""
    seen: dict[Node, None] = {}
    stack: list[Node] = []
    for item in items(body):
        if isinstance(item, Assign):
            stack += (item.offset, item.value)
        else:
            stack.append(item.fold.value)
    while stack:
        n = stack.pop()
        if n not in seen:
            seen[n] = None
            if n.op is not Op.REDUCE:
                stack.extend(n.srcs)
    return list(seen)


def _accesses(body: Sequence[Item]) -> list[tuple[Node, int]]:
    """(offset, bytes) of each load and store inside."""
    found = [(n.srcs[0], n.arg.dtype.bytes) for n in nodes(body) if n.op is Op.LOAD]
    for item in items(body):
        if isinstance(item, Assign):
            found.append((item.offset, 2 * item.buffer.dtype.bytes))
    return found


# --- lanes


def _lanes(body: Sequence[Item], isa: Isa) -> None:
    for item in body:
        if isinstance(item, Pass):
            _, axis = _best(item, isa)
            if axis is None or axis not in item.axes:
                item.axes = _ordered(item, item.axes)
                _lanes(item.body, isa)
            else:
                _vectorise(item, axis, isa)


def _best(p: Pass, isa: Isa, start: int = 0) -> tuple[float, Axis | None]:
    """The score of the best axis of `p`, or of the best axes of the passes inside (None).  `start`: positions that
    cost as much as starting the loop."""
    accesses = _accesses(p.body)
    inner = [i for i in p.body if isinstance(i, Pass)]
    best: tuple[float, Axis | None] = (-1.0, None)
    if inner:
        best = (sum(_best(i, isa, ROW)[0] for i in inner), None)
    if not inner and p.folds:
        start += ACROSS
    for a in p.axes:
        score = _score(accesses, a, isa)
        score *= a.extent / (a.extent + start)
        if score > best[0]:
            best = (score, a)
    return best


def _score(accesses: list[tuple[Node, int]], a: Axis, isa: Isa) -> float:
    lanes = isa.lanes(4)
    filled = a.extent / (-(-a.extent // lanes) * lanes)
    if a.extent < lanes:
        filled *= PARTIAL
    total = 0.0
    for offset, width in accesses:
        found = stride(offset, a)
        smooth = found is not None and found[0] in (0, 1)
        total += width * size(offset.free) * (1.0 if smooth else STRIDED)
    return total * filled


def _ordered(p: Pass, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Large strides outside."""
    accesses = _accesses(p.body)

    def reach(a: Axis) -> float:
        total = 0.0
        for offset, width in accesses:
            found = stride(offset, a)
            if found is not None:
                total += width * abs(found[0])
        return total

    return tuple(sorted(axes, key=reach, reverse=True))


def _vectorise(p: Pass, axis: Axis, isa: Isa) -> None:
    p.axes = (*_ordered(p, [a for a in p.axes if a != axis]), axis)
    p.vector = axis
    inside = nodes(p.body)
    widest = max(
        *(_element_bytes(n) for n in inside if axis in n.free),
        *(i.buffer.dtype.bytes for i in items(p.body) if isinstance(i, Assign)),
        *(_element_bytes(i.fold.value) for i in items(p.body) if isinstance(i, Accumulate)),
        1,
    )
    p.lanes = isa.lanes(widest)
    work = sum(weight(n) for n in inside)
    has_inner = any(isinstance(i, Pass) for i in p.body)
    for inner in p.body:
        if isinstance(inner, Pass):
            _order_inside(inner)
    if axis.extent < 2 * p.lanes:
        p.unroll = 1
    elif has_inner:
        p.unroll = 4 if work <= 30 else 2 if work <= 60 else 1
    elif p.folds or any(isinstance(i, Accumulate) for i in p.body):
        p.unroll = 4 if work <= 40 else 2 if work <= 100 else 1
    else:
        p.unroll = 2 if work <= 12 else 1
    p.unroll = min(p.unroll, max(1, axis.extent // p.lanes))
    if not has_inner and not p.folds and all(isinstance(i, Assign) for i in p.body):
        _transpose(p)


def _transpose(p: Pass) -> None:
    """Plans squares for loads that are contiguous along another axis than the lanes."""
    candidates: dict[Axis, list[Node]] = {}
    for n in nodes(p.body):
        if n.op is not Op.LOAD or len(n.srcs) != 1:
            continue
        along = stride(n.srcs[0], p.vector)
        if along is None or along[0] in (0, 1):
            continue
        for a in p.axes[:-1]:
            across = stride(n.srcs[0], a)
            if across is not None and across[0] == 1:
                candidates.setdefault(a, []).append(n)
    if not candidates or p.vector.extent < 4:
        return
    axis, loads = max(candidates.items(), key=lambda c: (len(c[1]), c[0].extent))
    if axis.extent < 4:
        return
    block = Axis(f"{axis.name}b", -(-axis.extent // SQUARES))
    p.axes = (*[a for a in p.axes if a not in (axis, p.vector)], block, p.vector)
    p.transposed, p.unroll = Transposed(axis, block, loads), 1


def _order_inside(p: Pass) -> None:
    p.axes = _ordered(p, p.axes)
    for item in p.body:
        if isinstance(item, Pass):
            _order_inside(item)


def _element_bytes(n: Node) -> int:
    if is_index(n):
        known = bounds(n)
        if known is not None and known[0] >= -(1 << 31) and known[1] < 1 << 31:
            return 1  # computed in 32 bits, or only an address
    if n.op is Op.LOAD and n.dtype is DType.BOOL:
        return 1
    return 1 if n.dtype is DType.BOOL else n.dtype.bytes


# --- threads


def work(p: Pass) -> float:
    """Cost of the whole pass."""
    total = 0.0
    own: list[Item] = []
    for item in p.body:
        if isinstance(item, Pass):
            total += work(item)
        else:
            own.append(item)
    if own:
        total += sum(weight(n) for n in nodes(own) if not is_index(n)) + sum(
            width for _, width in _accesses(own)
        )
    total *= size(p.axes)
    return total if p.transposed is None else total * SQUARES


def _parallel(body: Sequence[Item], outer: int) -> None:
    for p in body:
        if not isinstance(p, Pass) or work(p) < PARALLEL_WORK:
            continue
        loops = p.axes[:-1] if p.vector else p.axes
        split, range_ = 0, 1
        while split < len(loops) and range_ < CHUNKS:
            range_ *= loops[split].extent
            split += 1
        block = 0
        squares = p.transposed is not None
        if p.vector is not None and split == len(loops) and range_ < CHUNKS and not squares:
            step = p.lanes * p.unroll
            has_inner = any(isinstance(i, Pass) for i in p.body)
            least = step if has_inner else max(BLOCK // range_ // step, 1) * step
            wanted = -(-p.vector.extent * range_ // CHUNKS)
            block = max(-(-wanted // step) * step, least)
            range_ *= -(-p.vector.extent // block)
        has_inner = any(isinstance(i, Pass) for i in p.body)
        if has_inner and range_ < ROWS_ENOUGH:
            _parallel(p.body, outer * size(p.axes))
            continue
        if range_ > 1:
            p.parallel, p.split, p.block = True, split, block


# --- row buffers


def _keep(body: Sequence[Item], width: int) -> None:
    """Values of a pass that a later pass of the same block needs again, if they cost more than a trip to the cache.
    `width`: neighbours that a lane loop around works on at once."""
    passes = [i for i in body if isinstance(i, Pass)]
    for p in passes:
        _keep(p.body, p.lanes * p.unroll if p.vector else width)
    plain = [
        p for p in passes if not p.parallel and not any(isinstance(i, Pass) for i in p.body)
    ]  # fmt: skip
    for later_at, later in enumerate(plain):
        for earlier in plain[:later_at]:
            same_lanes = (earlier.vector, earlier.lanes) == (later.vector, later.lanes)
            if same_lanes and set(earlier.axes) == set(later.axes):
                _share(earlier, later, ROW_BYTES // (size(earlier.axes) * width))


def _share(earlier: Pass, later: Pass, room: int) -> None:
    """`room`: bytes for each position."""
    first = set(nodes(earlier.body))
    kept = {row.node: row for row in earlier.keeps}
    known = {row.node for row in later.reads}
    stack = [
        n for i in later.body
        for n in ((i.value, i.offset) if isinstance(i, Assign) else (i.fold.value,))
    ]  # fmt: skip
    seen: set[Node] = set()
    while stack:
        n = stack.pop()
        if n in seen or n in known or n.op is Op.REDUCE:
            continue
        seen.add(n)
        if n in first and n.dtype.bytes <= room and _worth(n, earlier):
            row = kept.get(n)
            if row is None:
                row = Row(n, earlier.axes)
                kept[n] = row
                earlier.keeps.append(row)
                room -= n.dtype.bytes
            later.reads.append(row)
            continue
        stack.extend(n.srcs)


def _worth(n: Node, p: Pass) -> bool:
    axes = set(p.axes)
    depends = p.vector in n.free if p.vector else bool(n.free & axes)
    if not depends or n.dtype is DType.BOOL or is_index(n):
        return False
    total = 0.0
    seen: set[Node] = set()
    stack = [n]
    while stack:
        m = stack.pop()
        if m in seen or m.op is Op.REDUCE or not m.free & axes or is_index(m):
            continue
        seen.add(m)
        total += weight(m)
        stack.extend(m.srcs)
    return total > KEEP_COST
