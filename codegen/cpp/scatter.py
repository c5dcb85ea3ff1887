"""Scatters in C++: the loops of a kernel that stores at data-dependent positions, and the statement inside.

Positions that may write the same element run in their order; all others may be lanes and threads. The lane
axis is the one along which elements are contiguous: a whole row goes to the place that its index gives.
Without such an axis, elements are written one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frameloom.codegen.cpp.prelude import ELEMENTS
from frameloom.codegen.cpp.vector import Isa
from frameloom.codegen.schedule.cost import cost, size
from frameloom.codegen.schedule.layout import coalesce, place_in, stride
from frameloom.codegen.schedule.loop_nest import Accumulate, Assign, Fold, Pass, Tree, nodes
from frameloom.codegen.schedule.sink import Sink
from frameloom.codegen.schedule.threads import BLOCK, CHUNKS, PARALLEL_WORK, ROWS_ENOUGH, work
from frameloom.codegen.schedule.tile_cpu import element_bytes
from frameloom.ir.dtype import DType
from frameloom.ir.index import index
from frameloom.ir.node import Axis, Node, binary, cast, load, unary
from frameloom.ir.ops import Op
from frameloom.ir.passes.sink_checks import bad_positions
from frameloom.ir.program import Buffer, Kernel, Kind
from frameloom.ir.reductions import REDUCTIONS
from frameloom.ir.scatter import combined, guarded
from frameloom.ir.substitute import FALSE, loads
from frameloom.ir.symbolic.expr import hint_of, may_exceed_1

if TYPE_CHECKING:
    from frameloom.codegen.cpp.memory import Memory

BITS = {DType.F32: DType.I32, DType.F64: DType.I64}

# --- loops


def schedule_scatter(kernel: Kernel, isa: Isa) -> Tree:
    """Returns the loop tree of a kernel that scatters."""
    scatter, *flags = kernel.stores
    assert scatter.scatter is not None
    goals = [Sink(scatter.axes, scatter.value, scatter.buffer, scatter.offset)]
    for f in flags:
        bad = bad_positions(f, scatter)
        assert bad is not None
        goals.append(Sink(scatter.axes, bad, reduction=f.value))
    axes = tuple(a for a in scatter.axes if may_exceed_1(a.extent))
    units = {a: index(0) for a in scatter.axes if not may_exceed_1(a.extent)}
    goals = [g.renamed(units, axes) for g in goals]
    # Neighbouring axes along which no element is written twice become one if they are contiguous in memory.
    conflict_free = tuple(a for a in axes if a not in scatter.scatter.along)
    goals, conflict_free = coalesce(goals, conflict_free)
    row = _row(goals[0], conflict_free)
    store, *checks = goals
    item = Assign(scatter.buffer, store.offset, store.value, scatter.scatter.kind)
    loaded = {n.arg: None for g in goals for n in loads(g.roots)}
    buffers = tuple(dict.fromkeys((*loaded, *(s.buffer for s in kernel.stores))))
    stops = tuple((f.buffer, g.value) for f, g in zip(flags, checks, strict=True))
    passed = [Assign(f.buffer, f.offset, FALSE) for f in flags]
    if not store.axes:
        item.checks = stops
        return Tree([item, *passed], buffers)
    order = tuple(a for a in store.axes if a != row) + (() if row is None else (row,))
    p = Pass(order, [item])
    if row is not None:
        computed = [element_bytes(n) for n in nodes(p.body) if row in n.free]
        p.vector, p.lanes = row, isa.lanes(max(scatter.buffer.dtype.bytes, *computed))
        p.unroll = 4 if hint_of(row.extent) >= 4 * p.lanes and cost(nodes(p.body)) <= 20 else 1
    _share(p, conflict_free)
    if not p.parallel and row is None:
        # As in eager mode, the writes before a bad index are done.
        item.checks = stops
        return Tree([p, *passed], buffers)
    p.folds = [Fold(g.reduction, g.value, order) for g in checks]
    p.body += map(Accumulate, p.folds)
    return Tree([p, *(Assign(f.buffer, f.offset, f.value) for f in flags)], buffers)


def _row(goal: Sink, conflict_free: Sequence[Axis]) -> Axis | None:
    """Returns the axis along which the elements of a row are contiguous; None if there is none."""
    mask, place = guarded(goal.offset)
    for a in conflict_free:
        along = stride(place, a)
        if along is not None and along[0] == 1 and (mask is None or a not in mask.free):
            return a
    return None


def _share(p: Pass, conflict_free: Sequence[Axis]) -> None:
    """Makes `p` parallel: threads share the outermost loops that write no element twice, or blocks of the
    lanes. Elements that are written one by one keep their order: otherwise neighbours in memory would be read
    far apart in time."""
    if work(p) < PARALLEL_WORK:
        return
    split = next(
        (k for k, a in enumerate(p.axes) if a not in conflict_free or a == p.vector), len(p.axes)
    )
    if size(p.axes[:split]) >= ROWS_ENOUGH or (p.vector is None and size(p.axes[:split]) > 1):
        p.parallel, p.split = True, split
    elif p.vector is not None:
        step = p.lanes * p.unroll
        length = hint_of(p.vector.extent)
        p.block = max(-(-length // CHUNKS // step) * step, min(BLOCK, 4 * step))
        p.parallel = length > p.block
        p.block *= p.parallel


# --- the statement


def write_scatter(w: Memory, item: Assign) -> None:
    """Writes buffer[offset] = the new value of the element, where the scatter stores something."""
    assert item.scatter is not None
    mask, place = guarded(item.offset)
    for flag, fails in item.checks:
        w.open(f"if ({w.value(fails).texts[0]})")
        w.line(f"{w.pointers[flag]}[0] = true;")
        w.line("return 0;")
        w.close()
    # The loop needs the value anyway, so it is computed outside the condition.
    w.value(item.value)
    if mask is not None:
        w.open(f"if ({w.value(mask).texts[0]})")
    value = item.value
    if item.scatter != "set":
        before = load(item.buffer, place)
        known = _element_at_position(w, before)
        one_by_one = w.lanes is None and value.dtype in BITS
        extreme = _extreme if REDUCTIONS[item.scatter].selects and one_by_one else combined
        value = extreme(item.scatter, known, value)
    w.store(item.buffer, place, value)
    if mask is not None:
        w.close()


def _extreme(kind: str, a: Node, b: Node) -> Node:
    """Returns maximum or minimum without a branch, because data would often make the branch mispredict."""
    bits = BITS[a.dtype]
    better = binary(REDUCTIONS[kind].replaces, a, b)
    first = unary(Op.NEG, cast(bits, binary(Op.OR, better, unary(Op.ISNAN, a))))
    one = binary(Op.AND, Node(Op.BITCAST, bits, (a,)), first)
    other = binary(Op.AND, Node(Op.BITCAST, bits, (b,)), unary(Op.NOT, first))
    return Node(Op.BITCAST, a.dtype, (binary(Op.OR, one, other),))


def _element_at_position(w: Memory, before: Node) -> Node:
    """Returns a leaf for the element's current value. It is loaded again at every position, also if its
    address depends on fewer axes."""
    from frameloom.codegen.cpp.value import Value  # the writer imports this module

    open_axes = tuple(a for s in w.scopes for a in s.variables)
    shape = tuple(a.extent for a in open_axes)
    buffer = Buffer("element", before.dtype, shape, (), Kind.TEMP)
    leaf = load(buffer, place_in(open_axes))
    vector = w.lanes is not None
    if vector:
        texts, type_ = w.load_texts(before), w.type_of(before.dtype, w.lanes.width)
    else:
        texts = [f"{w.pointers[before.arg]}[{w.value(before.srcs[0]).texts[0]}]"]
        type_ = ELEMENTS[before.dtype]
    names = []
    for text in texts:
        name = w.fresh("e")
        w.line(f"const {type_} {name} = {text};")
        names.append(name)
    w.bind(leaf, Value(tuple(names), before.dtype, vector))
    return leaf
