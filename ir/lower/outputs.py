"""The end of a graph: writes to inputs, and returned values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from frameloom.ir.lower import lazy
from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.geometry import WRITE_BACK, contiguous_strides, origin, store_of, view_of
from frameloom.ir.lower.table import Ref, positions, read
from frameloom.ir.node import const
from frameloom.ir.program import Extern, Kernel, Kind, View, is_cuda

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering


class NotATensor:
    """The value of a placeholder that is no tensor: the graph can only pass it through."""

    def __init__(self, position: int) -> None:
        self.position = position


def write_back(graph: Lowering, node: torch.fx.Node, target: torch.fx.Node, source: Any) -> Ref:
    """Writes `source` into an input, or into a view of one."""
    into: Ref = graph.values[target]
    if source in graph.writes.delayed:
        graph.steps += graph.writes.delayed[source]
        graph.writes.written.add(into.buffer)
        return into
    value = graph.values[source] if isinstance(source, torch.fx.Node) else source
    if value == into:
        return into
    assert into.buffer.kind is Kind.INPUT, f"{node} writes to {into.buffer}, which is no input"
    if isinstance(value, Ref) and value.buffer.kind is Kind.INPUT:
        value = _copied_early(graph, node, value)
    is_cpu_input = graph.on_gpu and not is_cuda(into.buffer.device)
    if isinstance(value, Ref) and is_cpu_input:
        graph.writes.cpu_writes.append((view_of(into), view_of(value), node))
    elif isinstance(value, Ref) and (value.dtype is None or into.dtype is None):
        graph.steps.append(
            Extern(WRITE_BACK, (view_of(into), view_of(value)), (), (None,), origin(node))
        )
    elif 0 not in into.shape:
        assert into.dtype is not None
        if isinstance(value, Ref):
            element = read(value, positions(into.shape))
        else:
            element = Expr(const(value, into.dtype))
        graph.steps.append(graph.kernel(WRITE_BACK, store_of(into, element), node))
    graph.writes.written.add(into.buffer)
    return into


def write_cpu_inputs(graph: Lowering) -> None:
    """Writes to CPU tensors in a graph on a GPU, such as an optimizer's counters: one call for all of
    them."""
    if not graph.writes.cpu_writes:
        return
    into, values, nodes = zip(*graph.writes.cpu_writes, strict=True)
    lines = tuple(line for node in nodes for line in origin(node))
    if len(into) == 1:
        call = Extern(WRITE_BACK, (into[0], values[0]), (), (None,), lines)
    else:
        call = Extern("aten._foreach_copy_.default", (into, values), (), (), lines)
    graph.steps.append(call)


def _copied_early(graph: Lowering, node: torch.fx.Node, value: Ref) -> Ref:
    """Copies an input's old value before any input is written."""
    if value.dtype is None:
        return value
    strides = contiguous_strides(value.shape)
    ref = graph.fresh(f"{node.name}_old", value, value.shape, strides)
    if 0 not in value.shape:
        store = store_of(ref, read(value, positions(value.shape)))
        writes = (
            k for k, s in enumerate(graph.steps)
            if isinstance(s, Kernel) and s.stores[0].buffer in graph.writes.written
        )  # fmt: skip
        first_write = next(writes, len(graph.steps))
        graph.steps.insert(first_write, graph.kernel("aten.clone", store, node))
    return ref


def returned(graph: Lowering, value: Any) -> View | int | tuple[Any]:
    """Returns a view of a buffer, the number of an input that is returned itself, or (constant,)."""
    if not isinstance(value, torch.fx.Node):
        return (value,)
    result = graph.values[value]
    if isinstance(result, NotATensor):
        return result.position
    if not isinstance(result, Ref):
        return (result,)
    if value in graph.layouts.raw:
        return lazy.returned(graph, value)
    itself: Any = value
    while str(itself.target) == WRITE_BACK:
        itself = itself.args[0]
    return graph.inputs.index(result.buffer) if itself.op == "placeholder" else view_of(result)
