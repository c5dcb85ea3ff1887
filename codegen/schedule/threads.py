"""Decides which loop nests run on the thread pool, and what one work item is."""

from __future__ import annotations

from collections.abc import Sequence

from frameloom.codegen.schedule.cost import cost, count, size
from frameloom.codegen.schedule.layout import is_index
from frameloom.codegen.schedule.loop_nest import TRANSPOSE_BLOCK, Item, Pass, accesses, nodes
from frameloom.ir.symbolic.expr import Int, Size, hint_of, largest

# In cost units; about 10 microseconds: the pool takes 1 to wake, on a busy machine more.
PARALLEL_WORK = 500_000
ROWS_ENOUGH = 16  # work items that justify a parallel loop of their own
CHUNKS = 64  # partial results of a parallel reduction; they affect rounding, so never use the thread count
BLOCK = 4096  # minimum positions of the lane axis in one work item


def share(body: Sequence[Item]) -> None:
    """Makes loop nests parallel where this pays, as far outside as there are enough work items."""
    for p in body:
        if not isinstance(p, Pass) or p.scan:
            continue
        cost_of_all, varies = work(p), isinstance(positions(p), Size)
        if cost_of_all < PARALLEL_WORK and not varies:
            continue
        has_inner = any(isinstance(i, Pass) for i in p.body)
        split, items = _leading(p)
        block = 0
        if p.vector is not None and p.transposed is None and p.blocked is None and items < CHUNKS:
            block = _block(p, items, has_inner)
            items *= -(-hint_of(p.vector.extent) // block)
        few = items < ROWS_ENOUGH and not isinstance(size(p.axes), Size)
        if has_inner and few:
            p.strip = 0  # threads share the rows
            share(p.body)
        elif items > 1 or varies:
            p.parallel, p.split, p.block = True, split, block
            if varies:
                p.enough = _enough(p, cost_of_all)


def _leading(p: Pass) -> tuple[int, int]:
    """Returns how many outer loops together give enough work items, and the number of these items."""
    loops = p.axes[:-1] if p.vector else p.axes
    if p.blocked is not None and p.blocked.within in loops:
        loops = loops[: loops.index(p.blocked.within)]  # its length depends on the item
    split, items = 0, 1
    while split < len(loops) and items < CHUNKS:
        items *= hint_of(loops[split].extent)
        split += 1
    return split, items


def _block(p: Pass, items: int, has_inner: bool) -> int:
    """Returns the positions of the lane axis in one work item; all blocks but the last are whole steps of its
    loop."""
    step = p.lanes * p.unroll
    least = step if has_inner else max(BLOCK // items // step, 1) * step
    wanted = -(-hint_of(p.vector.extent) * items // CHUNKS)
    return max(-(-wanted // step) * step, least)


def positions(p: Pass) -> Int:
    """Returns an upper bound of how often the innermost body runs."""
    inner = [positions(i) for i in p.body if isinstance(i, Pass)]
    return size(p.axes) * largest(1, *inner)


def _enough(p: Pass, cost_of_all: float) -> tuple[Int, int]:
    """Returns the number of positions, and the minimum of this number for which threads pay."""
    total = positions(p)
    return total, int(PARALLEL_WORK * hint_of(total) / max(cost_of_all, 1.0)) + 1


def work(p: Pass) -> float:
    """Returns the cost of the whole loop nest."""
    total = sum(work(i) for i in p.body if isinstance(i, Pass))
    own = [i for i in p.body if not isinstance(i, Pass)]
    total += cost(n for n in nodes(own) if not is_index(n))
    total += sum(width for _, width in accesses(own))
    total *= count(p.axes)
    return total if p.transposed is None else total * TRANSPOSE_BLOCK
