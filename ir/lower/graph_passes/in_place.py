"""Scatters directly into an input that the program changes in place, without a copy and a write-back.

There are two ways.  A scatter runs at its place in the program if no later op needs the old value and all
later ops may read the new value from the input.  If only the input itself gets the new value, it runs at the
write-back.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from frameloom.ir.fallible import may_raise, never_raises
from frameloom.ir.lower.geometry import WRITE_BACK, base_of, is_view, scatter_of
from frameloom.ir.lower.table import TABLE, Ref, Scattered, positions, read
from frameloom.ir.program import Buffer, Kind, Store, leaves
from frameloom.ir.scatter import reads_own
from frameloom.ir.substitute import loads
from frameloom.ir.symbolic.expr import number

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering


@dataclass(frozen=True)
class InPlace:
    """`stores` write the new value of a node into the input `into`, at once or at its write-back."""

    into: Ref
    stores: list[Store]
    immediate: bool


def in_place(graph: Lowering, node: torch.fx.Node, value: Scattered) -> InPlace | None:
    """Returns how `node` is computed in an input; None if it needs its own memory."""
    ends = [u for u in node.users if str(u.target) == WRITE_BACK and u.args[1] is node]
    if len(ends) != 1:
        return None
    (end,) = ends
    into = graph.values[end.args[0]]  # type: ignore[index]
    if not isinstance(into, Ref) or into.buffer.kind is not Kind.INPUT or into.dtype is None:
        return None
    if value.initial.node is not read(into, positions(into.shape)).node:
        return None
    stores = [scatter_of(into, u) for u in value.updates]
    changed = _inputs_written(graph, end)
    if into.buffer in changed or any(map(reads_own, stores)):
        return None
    if len(node.users) == 1:
        # Other inputs may be written before this one, so the stores must not read them.
        read_here = {n.arg for s in stores for n in loads([s.value, s.offset])}
        return InPlace(into, stores, False) if changed.isdisjoint(read_here) else None
    if graph.layouts.channels_last or graph.bails_out:  # inputs are written only at the end
        return None
    immediate = (
        _same_place(graph, node, into) and _is_overwritable(node, end) and not _can_fail_later(node)
    )
    return InPlace(into, stores, True) if immediate else None


def _inputs_written(graph: Lowering, but: torch.fx.Node) -> set[Buffer]:
    """Returns the inputs that other nodes than `but` write to."""
    inputs = set()
    for node in graph.graph.nodes:
        if str(node.target) == WRITE_BACK and node is not but:
            inputs.add(graph.values[base_of(node.args[0])[0]].buffer)
    return inputs


def _same_place(graph: Lowering, node: torch.fx.Node, into: Ref) -> bool:
    """Whether views of `node` have the same geometry as views of the input."""
    val = node.meta["val"]
    strides = tuple(map(number, val.stride()))
    return strides == into.strides and graph.base_offset[into.buffer] == int(val.storage_offset())


def _can_fail_later(node: torch.fx.Node) -> bool:
    """Whether a call can fail at an op that depends on `node`: then it bails out, and nothing may be written
    before."""
    seen, later = {node}, node.next
    while later.op != "root":
        if not seen.isdisjoint(later.all_input_nodes) and later.op == "call_function":
            if _may_fail(later):
                return True
            seen.add(later)
        later = later.next
    return False


def _may_fail(node: torch.fx.Node) -> bool:
    name, val = str(node.target), node.meta.get("val")
    if name == WRITE_BACK or node.target is operator.getitem or is_view(node.target):
        return False
    of_floats = getattr(val, "dtype", torch.int64).is_floating_point
    given = [n.meta.get("val") for n in node.all_input_nodes]
    unknown = name not in TABLE or any(0 in getattr(v, "shape", ()) for v in given)
    return may_raise(name, of_floats) or (unknown and not never_raises(name))


def _is_overwritable(node: torch.fx.Node, end: torch.fx.Node) -> bool:
    """Whether no op after `node` needs the input's old value, or the new value as a separate tensor."""
    old = base_of(end.args[0])[0]  # type: ignore[arg-type]
    later = node.next
    while later.op != "root":
        if later.op == "output":
            exposed = [n for n in leaves(later.args[0]) if isinstance(n, torch.fx.Node)]
            if any(base_of(n)[0] is node for n in exposed):
                return False
        elif later is not end:
            bases = [base_of(n)[0] for n in later.all_input_nodes]
            if old in bases or (str(later.target) == WRITE_BACK and node in bases):
                return False
        later = later.next
    return True
