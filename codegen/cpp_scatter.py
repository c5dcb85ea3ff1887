"""Scatters in C++: the loops of a kernel that stores where data says, and the statement inside.

Positions that may hit the same element follow each other in their order; all others may be lanes and threads.  Lanes are the
axis along which elements are next to each other: a row at a time goes to where its index says.  Without such an axis
elements go one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from frameloom.codegen.cost import cost, size
from frameloom.codegen.goal import Goal
from frameloom.codegen.layout import coalesce, row_major, stride
from frameloom.codegen.looptree import Assign, Pass, Tree, nodes
from frameloom.codegen.threads import BLOCK, CHUNKS, PARALLEL_WORK, work
from frameloom.codegen.tiles import element_bytes
from frameloom.codegen.vector import Isa
from frameloom.ir.index import index, linear
from frameloom.ir.node import Axis, Node, axis, load
from frameloom.ir.program import Buffer, Kernel, Kind, Scatter, Store
from frameloom.ir.scatter import combined, guarded
from frameloom.ir.substitute import loads, substitute

if TYPE_CHECKING:
    from frameloom.codegen.cpp_memory import Memory


# --- loops


def schedule_scatter(kernel: Kernel, isa: Isa) -> Tree:
    """The loop tree of a kernel that scatters."""
    store = _merged(_without_unit_axes(kernel.stores[0]))
    assert store.scatter is not None
    item = Assign(store.buffer, store.offset, store.value, store.scatter.kind)
    found = {n.arg: None for n in loads((store.offset, store.value))}
    buffers = (*found, store.buffer)
    if not store.axes:
        return Tree([item], buffers)
    alone = [a for a in store.axes if a not in store.scatter.along]
    row = _row(store, alone)
    p = Pass(tuple(a for a in store.axes if a != row) + (() if row is None else (row,)), [item])
    if row is not None:
        computed = [element_bytes(n) for n in nodes(p.body) if row in n.free]
        p.vector, p.lanes = row, isa.lanes(max(store.buffer.dtype.bytes, *computed))
        p.unroll = 4 if row.extent >= 4 * p.lanes and cost(nodes(p.body)) <= 20 else 1
    _share(p, alone)
    return Tree([p], buffers)


def _without_unit_axes(store: Store) -> Store:
    units = {a: index(0) for a in store.axes if a.extent == 1}
    assert store.scatter is not None
    return replace(
        store,
        offset=substitute(store.offset, units),
        value=substitute(store.value, units),
        axes=tuple(a for a in store.axes if a not in units),
        scatter=Scatter(
            store.scatter.kind, tuple(a for a in store.scatter.along if a not in units)
        ),
    )


def _merged(store: Store) -> Store:
    """Neighbouring axes along which nothing can be hit twice as one, where memory sees them so."""
    assert store.scatter is not None
    alone = tuple(a for a in store.axes if a not in store.scatter.along)
    goal = Goal(store.axes, store.value, store.buffer, store.offset)
    (goal,), merged = coalesce([goal], alone)
    if merged == alone:
        return store
    assert goal.offset is not None
    return replace(store, offset=goal.offset, value=goal.value, axes=goal.axes)


def _row(store: Store, alone: Sequence[Axis]) -> Axis | None:
    """The axis along which the elements of a row lie next to each other."""
    mask, place = guarded(store.offset)
    for a in alone:
        found = stride(place, a)
        if found is not None and found[0] == 1 and (mask is None or a not in mask.free):
            return a
    return None


def _share(p: Pass, alone: Sequence[Axis]) -> None:
    """Threads share the outer loops, as far as they hit no element twice, or blocks of the lanes."""
    if work(p) < PARALLEL_WORK:
        return
    outer = [a for a in p.axes if a in alone and a != p.vector]
    rest = [a for a in p.axes if a not in outer]
    if size(outer) > 1 and (size(outer) >= CHUNKS or p.vector is None):
        p.axes = (*outer, *rest)
        p.parallel, p.split = True, len(outer)
    elif p.vector is not None:
        step = p.lanes * p.unroll
        p.block = max(-(-p.vector.extent // CHUNKS // step) * step, min(BLOCK, 4 * step))
        p.parallel = p.vector.extent > p.block
        p.block *= p.parallel


# --- the statement


def write_scatter(w: Memory, item: Assign) -> None:
    """buffer[offset] = what the scatter leaves there, where it stores something."""
    assert item.scatter is not None
    mask, place = guarded(item.offset)
    # What the loop needs anyway is computed outside of the condition.
    w.value(item.value)
    if mask is not None:
        w.open(f"if ({w.value(mask).texts[0]})")
    value = item.value
    if item.scatter != "set":
        before = load(item.buffer, place)
        known = _element_at_position(w, before)
        value = combined(item.scatter, known, value)
    w.store(item.buffer, place, value)
    if mask is not None:
        w.close()


def _element_at_position(w: Memory, before: Node) -> Node:
    """A leaf that stands for the element now: it is read again at every position, whatever its address depends on."""
    from frameloom.codegen.cpp_value import Value
    from frameloom.codegen.prelude import ELEMENTS

    open_axes = tuple(a for s in w.scopes for a in s.variables)
    shape = tuple(a.extent for a in open_axes)
    buffer = Buffer("element", before.dtype, shape, (), Kind.TEMP)
    leaf = load(buffer, linear([axis(a) for a in open_axes], row_major(open_axes)))
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
