"""Scatters: stores to places that depend on data (program.py).  A negative offset stores nothing."""

from __future__ import annotations

from collections.abc import Sequence

from frameloom.ir.dtype import DType
from frameloom.ir.index import bounds, index
from frameloom.ir.node import Node, binary, cast
from frameloom.ir.ops import EXPENSIVE, Op
from frameloom.ir.program import Kernel, Store, is_cuda
from frameloom.ir.reductions import combining_op
from frameloom.ir.substitute import compare, loads, select, topological

NOWHERE = index(-1)


def guard(mask: Node, offset: Node) -> Node:
    """Returns an offset that is `offset` where `mask` holds, and means "nowhere" elsewhere."""
    return select(mask, offset, NOWHERE)


def guarded(offset: Node) -> tuple[Node | None, Node]:
    """Returns (mask, place): the scatter stores where the mask holds (None: everywhere)."""
    if offset.op is Op.WHERE and offset.srcs[2] is NOWHERE:
        return offset.srcs[0], offset.srcs[1]
    span = bounds(offset)
    if span is not None and span[0] >= 0:
        return None, offset
    return compare(Op.GE, offset, index(0)), offset


def combined(kind: str, before: Node, value: Node) -> Node:
    """Returns the element that a scatter leaves in a place that held `before`."""
    if kind == "set":
        return value
    dtype = value.dtype
    op = combining_op(kind, dtype)
    wide = DType.F32 if dtype.is_half else dtype
    return cast(dtype, binary(op, cast(wide, before), cast(wide, value)))


def is_scatter(kernel: Kernel) -> bool:
    return any(s.scatter is not None for s in kernel.stores)


def scatters_alone(stores: Sequence[Store]) -> bool:
    """Whether the stores can be a scatter kernel: one store, whose value can be computed in the scatter's own
    loop."""
    if len(stores) != 1 or reads_own(stores[0]):
        return False
    (store,) = stores
    if store.offset.bound or store.value.bound:
        return False
    return is_cuda(store.buffer.device) or not any(
        n.op in EXPENSIVE for n in topological([store.value])
    )


def reads_own(store: Store) -> bool:
    """Whether the stored value or its place depends on the buffer that is stored to."""
    return any(n.arg == store.buffer for n in loads([store.value, store.offset]))
