"""Reductions that do not fit into the loops of their user go through memory of the kernel's own.

In `x[i, j] + rows[i] + columns[j]` a loop over i knows rows[i], but would compute each columns[j] once per i.  Such a
reduction is stored to a scratch buffer first, by a loop nest of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from frameloom.codegen.schedule.cost import count, size
from frameloom.codegen.schedule.sink import Sink
from frameloom.ir.index import linear
from frameloom.ir.node import Axis, Node, axis, load
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kind
from frameloom.ir.substitute import topological, transform

PREFIX = "scratch:"


def is_scratch(buffer: Buffer) -> bool:
    return buffer.name.startswith(PREFIX)


def materialise(goals: Sequence[Sink], before: int = 0) -> tuple[list[Sink], list[Buffer]]:
    """The goals with such reductions loaded, the goals that store them, and the buffers, of which the kernel has some `before`."""
    made: dict[Node, tuple[Sink, Node]] = {}
    waiting = list(goals)
    result: list[Sink] = []
    while waiting:
        goal = waiting.pop(0)
        reduction = _misfit(goal)
        if reduction is None:
            result.append(goal)
            continue
        if reduction not in made:
            made[reduction] = _stored(reduction, goal, before + len(made))
            waiting.append(made[reduction][0])
        read = made[reduction][1]
        roots = transform(goal.roots, lambda n: read if n is reduction else None)
        offset = roots[1] if goal.offset is not None else None
        waiting.insert(0, replace(goal, value=roots[0], offset=offset))
    return result, [g.buffer for g, _ in made.values() if g.buffer is not None]


def _misfit(goal: Sink) -> Node | None:
    """A reduction whose axes are neither inside nor around those of the one that is bound first."""
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
    strides = tuple(size(axes[at + 1 :]) for at in range(len(axes)))
    shape = tuple(a.extent for a in axes)
    buffer = Buffer(f"{PREFIX}{number}", reduction.dtype, shape, strides, Kind.TEMP)
    offset = linear([axis(a) for a in axes], strides)
    return Sink(axes, reduction, buffer, offset), load(buffer, offset)
