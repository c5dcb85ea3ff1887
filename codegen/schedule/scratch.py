"""Stores reductions that do not fit into the loops of their user to scratch memory of the kernel.

In `x[i, j] + rows[i] + columns[j]` a loop over i can compute rows[i] once, but would compute each columns[j]
once per i. A separate loop nest computes such a reduction first and stores it to a scratch buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from frameloom.codegen.schedule.cost import count
from frameloom.codegen.schedule.layout import dense, place_in
from frameloom.codegen.schedule.sink import Sink
from frameloom.ir.node import Axis, Node, load
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer
from frameloom.ir.substitute import topological, transform

PREFIX = "scratch:"


def is_scratch(buffer: Buffer) -> bool:
    return buffer.name.startswith(PREFIX)


def materialise(goals: Sequence[Sink], before: int = 0) -> tuple[list[Sink], list[Buffer]]:
    """Returns the sinks, with loads instead of such reductions, the sinks that store the reductions, and the
    buffers. `before`: the number of scratch buffers that the kernel already has."""
    stored: dict[Node, tuple[Sink, Node]] = {}
    waiting = list(goals)
    result: list[Sink] = []
    while waiting:
        goal = waiting.pop(0)
        reduction = _misfit(goal)
        if reduction is None:
            result.append(goal)
            continue
        if reduction not in stored:
            stored[reduction] = _stored(reduction, goal, before + len(stored))
            waiting.append(stored[reduction][0])
        read = stored[reduction][1]
        roots = transform(goal.roots, lambda n: read if n is reduction else None)
        offset = roots[1] if goal.offset is not None else None
        waiting.insert(0, replace(goal, value=roots[0], offset=offset))
    return result, [g.buffer for g, _ in stored.values() if g.buffer is not None]


def _misfit(goal: Sink) -> Node | None:
    """Returns a reduction whose axes neither contain nor are contained in those of the reduction that is
    bound first."""
    open_axes = frozenset(goal.axes)
    needs = {
        n: n.free & open_axes
        for n in topological(goal.roots)
        if n.op is Op.REDUCE and n.free & open_axes and n.free <= open_axes
    }
    chain: list[frozenset[Axis]] = []
    for n, need in sorted(needs.items(), key=lambda item: (len(item[1]), count(item[1]))):
        if chain and not chain[-1] <= need:
            return n
        chain.append(need)
    return None


def _stored(reduction: Node, goal: Sink, number: int) -> tuple[Sink, Node]:
    axes = tuple(a for a in goal.axes if a in reduction.free)
    buffer, offset = dense(f"{PREFIX}{number}", reduction.dtype, axes), place_in(axes)
    return Sink(axes, reduction, buffer, offset), load(buffer, offset)
