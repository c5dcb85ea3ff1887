"""Finds a store's axis along which data-dependent addresses repeat (the pixels that a grid names, for all
channels). The loop over that axis goes inside, so that the addresses are computed once."""

from __future__ import annotations

from frameloom.codegen.schedule.cost import cost
from frameloom.codegen.schedule.layout import is_index, stride_along
from frameloom.codegen.schedule.sink import Sink
from frameloom.ir.node import Axis
from frameloom.ir.ops import Op
from frameloom.ir.substitute import loads, topological

LEAST = 12.0  # minimum cost of computing the addresses for which this pays


def repeated(goal: Sink) -> Axis | None:
    """Returns the axis of a store whose loop is better inside; None if there is none."""
    if goal.buffer is None or goal.offset is None or len(goal.axes) < 2:
        return None
    gathers = [n for n in loads([goal.value]) if any(m.op is Op.LOAD for m in topological(n.srcs[:1]))]  # fmt: skip
    if not gathers:
        return None
    nodes = topological([goal.value])
    for a in goal.axes:
        if stride_along(goal.offset, a) in (None, 1):
            continue
        wanted = [n for n in nodes if n.op is Op.LOAD and a in n.free]
        if not wanted or not all(n in gathers and _moves(n.srcs, a) for n in wanted):
            continue
        if cost(n for n in nodes if n.free and a not in n.free and not is_index(n)) >= LEAST:
            return a
    return None


def _moves(srcs: tuple, a: Axis) -> bool:
    """Whether an address moves by a fixed step along `a`, and its mask does not depend on `a`."""
    return stride_along(srcs[0], a) is not None and all(a not in mask.free for mask in srcs[1:])
