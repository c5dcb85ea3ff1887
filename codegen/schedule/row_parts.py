"""Binds parts of one tensor's rows (stores cut by split_stores.py of the loop IR) to one loop over rows. The
parts of a row are then written one after the other, so that data that several of them read comes from memory
once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from frameloom.codegen.schedule.layout import stride_along
from frameloom.codegen.schedule.sink import Sink
from frameloom.ir.node import Axis
from frameloom.ir.program import Buffer
from frameloom.ir.substitute import loads
from frameloom.ir.symbolic.expr import hint_of

LONGEST = 4096  # elements of a row; after a longer row, the cache has little of it left


def row_by_row(goals: Sequence[Sink]) -> list[Sink]:
    """Returns `goals`, with the parts of rows bound to the loop over rows."""
    row_parts: dict[tuple[Buffer, tuple[Axis, ...]], list[Sink]] = {}
    for g in goals:
        if g.buffer is None or g.offset is None or len(g.axes) < 2 or g.bind:
            continue
        if stride_along(g.offset, g.axes[-1]) == 1:
            row_parts.setdefault((g.buffer, g.axes[:-1]), []).append(g)
    rows = {id(g): key[1] for key, parts in row_parts.items() if _shared(parts) for g in parts}
    return [replace(g, bind=rows[id(g)]) if id(g) in rows else g for g in goals]


def _shared(parts: Sequence[Sink]) -> bool:
    """Whether the parts are short, read the same tensor, and each need a loop of their own."""
    if (
        len({g.axes[-1].extent for g in parts}) < 2
        or sum(hint_of(g.axes[-1].extent) for g in parts) > LONGEST
    ):
        return False
    read = [{n.arg for n in loads(g.roots)} for g in parts]
    return bool(set.intersection(*read))
