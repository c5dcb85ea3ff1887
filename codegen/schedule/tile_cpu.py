"""Schedules a loop tree for the CPU: vector axis, order of loops, unrolling, threads, row buffers.

The vector axis is the one along which most bytes are contiguous. It may be an axis of an outer loop nest.
Then everything inside works on as many neighbours at once as there are lanes (a sum of columns, a softmax
over dim 0).
"""

from __future__ import annotations

from collections.abc import Sequence

from frameloom.codegen.cpp.vector import Isa
from frameloom.codegen.schedule.blocking import block
from frameloom.codegen.schedule.cost import cost, count
from frameloom.codegen.schedule.layout import is_index, stride_along
from frameloom.codegen.schedule.loop_nest import (
    TRANSPOSE_BLOCK,
    Accumulate,
    Assign,
    Item,
    Pass,
    Transposed,
    Tree,
    accesses,
    items,
    nodes,
)
from frameloom.codegen.schedule.row_buffers import keep
from frameloom.codegen.schedule.threads import share
from frameloom.codegen.sizes import index_fits_i32
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node
from frameloom.ir.ops import Op
from frameloom.ir.symbolic.expr import hint_of

L2_BYTES = 1 << 20  # of one core, approximately
SPAN = 256  # lane positions of one tile of transposed squares; large, so that contiguous accesses are long
TILES = 3  # per loop nest; they are on a thread's stack
STRIP_ROWS = 64  # minimum rows for strips: more pages than the first-level TLB holds
STRIP_BYTES = 16 << 10  # of the accumulators of one strip

# Rough costs for the choice of the vector axis.
STRIDED = 0.2  # speed of gathering lanes one by one, relative to a contiguous load
ONE_BY_ONE = 0.4  # speed without vectors
PARTIAL = 0.5  # speed of a partial vector, in addition to the lanes that it lacks
# If a body costs more than this, its positions and masks must each fit into one register. Otherwise the C++
# compiler needs minutes to assign registers.
LONG = 400
ROW = 16  # positions that cost as much as starting a loop inside another
HORIZONTAL = 32  # ... as combining the lanes of an accumulator at the end of a row


def finish(tree: Tree, isa: Isa) -> None:
    """Makes all choices for every loop nest of `tree`."""
    _lanes(tree.body, isa)
    share(tree.body)
    keep(tree.body, 1)


def _lanes(body: Sequence[Item], isa: Isa) -> None:
    for item in body:
        if isinstance(item, Pass):
            _, axis = _best(item, isa)
            if axis is None or axis not in item.axes:
                item.axes = _ordered(item, item.axes)
                _lanes(item.body, isa)
            else:
                _vectorise(item, axis, isa)
            if sum(isinstance(i, Pass) for i in body) == 1:
                block(item)


def _best(p: Pass, isa: Isa, start: int = 0) -> tuple[float, Axis | None]:
    """Returns the score of the best axis of `p` and the axis, or the score of the best axes of the loop nests
    inside and None. `start`: the number of positions that cost as much as starting the loop."""
    memory_ops = accesses(p.body)
    inner = [i for i in p.body if isinstance(i, Pass)]
    best: tuple[float, Axis | None] = (-1.0, None)
    if p.scan and any(f.node.arg.kind == "prod" for f in p.folds):
        # One position after the other: if an early product is 0 and a later one infinite, another order has
        # another result.
        return sum(width * count(offset.free) for offset, width in memory_ops) * ONE_BY_ONE, None
    if inner:
        best = (sum(_best(i, isa, ROW)[0] for i in inner), None)
    if not inner and p.folds:
        start += HORIZONTAL
    for a in p.axes:
        score = _score(memory_ops, a, isa)
        score *= hint_of(a.extent) / (hint_of(a.extent) + start)
        if score > best[0]:
            best = (score, a)
    return best


def _score(memory_ops: list[tuple[Node, int]], a: Axis, isa: Isa) -> float:
    lanes = isa.lanes(4)
    extent = hint_of(a.extent)
    filled = extent / (-(-extent // lanes) * lanes)
    if extent < lanes:
        filled *= PARTIAL
    total = 0.0
    for offset, width in memory_ops:
        smooth = stride_along(offset, a) in (0, 1)
        total += width * count(offset.free) * (1.0 if smooth else STRIDED)
    return total * filled


def _ordered(p: Pass, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Sorts `axes`: large strides outside."""
    memory_ops = accesses(p.body)

    def reach(a: Axis) -> float:
        steps = [(stride_along(offset, a), width) for offset, width in memory_ops]
        return sum(width * abs(hint_of(along)) for along, width in steps if along is not None)

    return tuple(sorted(axes, key=reach, reverse=True))


def _vectorise(p: Pass, axis: Axis, isa: Isa) -> None:
    p.axes = (*_ordered(p, [a for a in p.axes if a != axis]), axis)
    p.vector = axis
    inside = nodes(p.body)
    widest = max(
        *(element_bytes(n) for n in inside if axis in n.free),
        *(i.buffer.dtype.bytes for i in items(p.body) if isinstance(i, Assign)),
        *(element_bytes(i.fold.value) for i in items(p.body) if isinstance(i, Accumulate)),
        1,
    )
    p.lanes = isa.lanes(widest)
    gathers = any(stride_along(offset, axis) not in (0, 1) for offset, _ in accesses(p.body))
    work = cost(inside)
    if gathers or work > LONG or any(_is_one_for_some_lanes(n, axis) for n in inside):
        # Lanes that are collected one by one do not pay for more than one register of floats.
        p.lanes = min(p.lanes, isa.lanes(4))
    has_inner = any(isinstance(i, Pass) for i in p.body)
    for inner in p.body:
        if isinstance(inner, Pass):
            _order_inside(inner)
    extent = hint_of(axis.extent)
    if extent < 2 * p.lanes:
        p.unroll = 1
    elif has_inner:
        p.unroll = 4 if work <= 30 else 2 if work <= 60 else 1
    elif p.scan:
        p.unroll = 1
    elif p.folds or any(isinstance(i, Accumulate) for i in p.body):
        p.unroll = 4 if work <= 40 else 2 if work <= 100 else 1
    else:
        p.unroll = 2 if work <= 80 else 1
    p.unroll = min(p.unroll, max(1, extent // p.lanes))
    if has_inner and work <= 30:
        _strip(p)
    if not has_inner and not p.folds and all(isinstance(i, Assign) for i in p.body):
        _transpose(p)


def _is_one_for_some_lanes(n: Node, axis: Axis) -> bool:
    """Whether `n` loads one element for all lanes, under a mask that differs between lanes."""
    return n.op is Op.LOAD and len(n.srcs) == 2 and axis in n.srcs[1].free - n.srcs[0].free


def _transpose(p: Pass) -> None:
    """Plans transpose tiles for loads that are contiguous along an axis other than the lanes."""
    candidates: dict[Axis, list[Node]] = {}
    for n in nodes(p.body):
        if n.op is not Op.LOAD or len(n.srcs) != 1:
            continue
        if stride_along(n.srcs[0], p.vector) in (None, 0, 1):
            continue
        for a in p.axes[:-1]:
            if stride_along(n.srcs[0], a) == 1:
                candidates.setdefault(a, []).append(n)
    if not candidates or hint_of(p.vector.extent) < 4:
        return
    axis, loads = max(candidates.items(), key=lambda c: (len(c[1]), hint_of(c[0].extent)))
    if hint_of(axis.extent) < 4:
        return
    blocks = Axis(f"{axis.name}b", -(-axis.extent // TRANSPOSE_BLOCK))
    whole = count(p.axes) * sum(n.dtype.bytes for n in loads) > L2_BYTES
    span = SPAN if whole else SPAN // 2
    loads = loads[:TILES]
    p.axes = (*[a for a in p.axes if a not in (axis, p.vector)], blocks, p.vector)
    p.transposed, p.unroll = Transposed(axis, blocks, loads, span), min(p.unroll, 2)


def _strip(p: Pass) -> None:
    """Plans accumulator strips for reductions along rows that are far apart in memory."""
    inner = [i for i in p.body if isinstance(i, Pass)]
    folds = [fold for i in inner for fold in i.folds]
    own = all(
        isinstance(i, Accumulate) and i.fold in inner_.folds
        for inner_ in inner
        for i in inner_.body
    )
    if p.folds or not own or any(f.node.arg.row.position for f in folds):
        return
    if min(count(i.axes) for i in inner) < STRIP_ROWS:
        return
    step = p.lanes * p.unroll
    # An accumulator and a partial sum of each fold.
    room = STRIP_BYTES // (2 * len(folds) * max(f.value.dtype.bytes for f in folds))
    if len(inner) > 1:
        # The next loop nest reads the rows again, from the cache.
        room = min(
            room,
            L2_BYTES
            // 2
            // sum(count(i.axes) * sum(w for _, w in accesses(i.body)) for i in inner),
        )
    whole = -(-hint_of(p.vector.extent) // step) * step
    strip = min(room // step * step, whole)
    if strip >= 2 * step:
        p.strip = strip


def _order_inside(p: Pass) -> None:
    p.axes = _ordered(p, p.axes)
    for item in p.body:
        if isinstance(item, Pass):
            _order_inside(item)


def element_bytes(n: Node) -> int:
    if (is_index(n) or (n.op is Op.WHERE and n.dtype is DType.I64)) and index_fits_i32(n):
        return 1  # computed in 32 bits, or only an address
    if n.op is Op.LOAD and n.dtype is DType.BOOL:
        return 1
    if n.dtype is DType.BOOL:
        # Masks of positions are made in 32 bits: narrowing them from several registers takes g++ seconds.
        return 4 if any(is_index(s) for s in n.srcs) else 1
    if n.op is Op.CAST and (n.dtype.is_half or n.srcs[0].dtype.is_half):
        return max(4, n.dtype.bytes)  # by way of 32-bit floats
    return n.dtype.bytes
