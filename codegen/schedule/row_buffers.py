"""Row buffers: values that one loop nest computes and a later one needs again (the exponentials of a
softmax)."""

from __future__ import annotations

from collections.abc import Sequence

from frameloom.codegen.schedule.cost import count, size, weight
from frameloom.codegen.schedule.layout import is_index
from frameloom.codegen.schedule.loop_nest import Assign, Item, Pass, RowBuffer, nodes
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.substitute import walk

# For all row buffers of a block: a part of the second-level cache, and of a thread's stack.
ROW_BYTES = 128 << 10
KEEP_COST = 8.0  # a value that costs more than this is kept for a later loop nest


def keep(body: Sequence[Item], width: int) -> None:
    """Keeps values of a loop nest that a later one of the same block needs again, if they cost more than an
    access to the cache. `width`: the number of neighbours that an enclosing vector loop works on at once."""
    passes = [i for i in body if isinstance(i, Pass)]
    for p in passes:
        if p.strip:
            continue
        keep(p.body, p.lanes * p.unroll if p.vector else width)
    plain = [
        p for p in passes if not p.parallel and not any(isinstance(i, Pass) for i in p.body)
    ]  # fmt: skip
    for later_at, later in enumerate(plain):
        for earlier in plain[:later_at]:
            same_lanes = (earlier.vector, earlier.lanes) == (later.vector, later.lanes)
            if same_lanes and set(earlier.axes) == set(later.axes):
                _share(earlier, later, ROW_BYTES // (count(earlier.axes) * width))
                _fits(earlier, width)


def _fits(p: Pass, width: int) -> None:
    """Adds the guard that the row buffers fit into ROW_BYTES, if sizes are dynamic."""
    taken = sum(row.node.dtype.bytes for row in p.keeps)
    if taken and not size(p.axes) * width * taken <= ROW_BYTES:
        raise AssertionError("a row buffer is too long")


def _share(earlier: Pass, later: Pass, room: int) -> None:
    """Keeps values of `earlier` that `later` computes, too. `room`: available bytes per position."""
    first = set(nodes(earlier.body))
    rows = {row.node: row for row in earlier.keeps}
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
            row = rows.get(n)
            if row is None:
                row = RowBuffer(n, earlier.axes)
                rows[n] = row
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

    def counts(m: Node) -> bool:
        return m.op is not Op.REDUCE and bool(m.free & axes) and not is_index(m)

    return sum(weight(m) for m in walk([n], counts) if counts(m)) > KEEP_COST
