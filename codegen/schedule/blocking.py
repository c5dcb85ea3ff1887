"""Blocks of a loop whose data an outer loop reads again: a block stays in the first-level cache until the
next iteration of the outer loop reads it.

Rotary embeddings multiply every head by the same tables. If the loop goes head by head, the tables come from
the second-level cache each time. If it goes block by block of positions, all heads of a block read them from
the first.
"""

from __future__ import annotations

from frameloom.codegen.schedule.cost import count
from frameloom.codegen.schedule.loop_nest import Assign, Blocked, Pass, nodes
from frameloom.ir.dtype import DType
from frameloom.ir.index import linear
from frameloom.ir.node import Axis, Node, axis
from frameloom.ir.ops import Op
from frameloom.ir.substitute import substitute
from frameloom.ir.symbolic.expr import Int, Size, hint_of

FIRST_CACHE = 32 << 10
BLOCK_BYTES = 16 << 10  # of the data that is read again, in one block
RUN = 1 << 10  # minimum bytes along the inner loops of a block: what the hardware prefetches


def block(p: Pass) -> None:
    """Cuts an axis of `p`, whose items are all stores, if that saves reading."""
    passes = [p, *(i for i in p.body if isinstance(i, Pass))]
    items = [i for q in passes for i in q.body if isinstance(i, Assign)]
    if sum(len(q.body) for q in passes) > len(items) + len(passes) - 1:
        return
    if any(q.folds or q.transposed for q in passes) or any(i.scatter for i in items):
        return
    loads = [n for n in nodes(p.body) if n.op is Op.LOAD]
    for at in range(len(p.axes) - 1):
        outer, cut = p.axes[at], p.axes[at + 1]
        inner = (*p.axes[at + 2 :], *(a for q in passes[1:] for a in q.axes))
        reused_bytes = sum(_bytes(n, (cut, *inner)) for n in loads if outer not in n.free)
        if reused_bytes <= FIRST_CACHE or any(
            n.op is Op.REDUCE and cut in n.free for n in nodes(p.body)
        ):
            continue
        step = p.lanes * p.unroll if cut == p.vector else 1
        length = _length(cut.extent, BLOCK_BYTES * hint_of(cut.extent) // reused_bytes, step)
        if length * count(inner) * min(n.dtype.bytes for n in loads) < RUN:
            continue
        blocks = Axis(f"{cut.name}b", -(-cut.extent // length))
        within = Axis(f"{cut.name}w", length)
        if isinstance(cut.extent, Size):
            p.blocked = Blocked(blocks, within, cut.extent)
        mapping = {cut: linear([axis(blocks), axis(within)], [length, 1])}
        for i in items:
            i.offset, i.value = substitute(i.offset, mapping), substitute(i.value, mapping)
        p.axes = (*p.axes[:at], blocks, outer, within, *p.axes[at + 2 :])
        p.vector = within if cut == p.vector else p.vector
        return


def _bytes(n: Node, axes: tuple[Axis, ...]) -> int:
    return count([a for a in axes if a in n.srcs[0].free]) * (
        1 if n.dtype is DType.BOOL else n.dtype.bytes
    )


def _length(extent: Int, longest: int, step: int) -> int:
    """Returns the length of a block, at most `longest`; 0 if there is none. It is a multiple of `step`. For a
    fixed extent it is the greatest divisor; for a dynamic one, the last block may be shorter."""
    longest = min(longest, hint_of(extent)) // step * step
    if isinstance(extent, Size):
        return longest
    return next((n for n in range(longest, 0, -step) if extent % n == 0), 0)
