"""Tensors with another layout than the program sees, and copies of them with the layout that it sees."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from frameloom.ir.lower.geometry import base_of, is_constant, same_places, store_of, view_of
from frameloom.ir.lower.graph_passes.constants import computing
from frameloom.ir.lower.layout import channels_last
from frameloom.ir.lower.table import Ref, positions, read
from frameloom.ir.program import Kind
from frameloom.ir.symbolic.expr import number

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering


def is_restrided(graph: Lowering, node: Any, ref: Any) -> bool:
    """Whether the value has other strides than the program sees."""
    if not graph.layouts.has_internal_layouts or not isinstance(ref, Ref):
        return False
    # A lazy view (conjugated or negated) is a computed copy: the layout of the view's memory does not matter.
    if node in graph.layouts.raw:
        return False
    if node.op != "call_function" and channels_last.ACTUAL_STRIDES not in node.meta:
        return False
    return ref.strides != tuple(map(number, node.meta["val"].stride()))


def with_visible_strides(graph: Lowering, node: Any) -> Any:
    """Returns the value of a node with the strides that the program sees."""
    ref = graph.values[node]
    if not is_restrided(graph, node, ref):
        return ref
    root, k = base_of(node)
    whole, val = graph.values[root], root.meta["val"]
    if isinstance(whole, list):
        whole, val = whole[k], val[k]
    copy = restrided(graph, whole, tuple(map(number, val.stride())), node)
    return graph.ref(copy.buffer, node.meta["val"]) if node is not root else copy


def restrided(
    graph: Lowering, ref: Ref, strides: tuple[int, ...], node: torch.fx.Node, kind: Kind = Kind.TEMP
) -> Ref:
    """Returns the same values with these strides: a copy, unless every element is in the right place
    already."""
    if same_places(ref.shape, ref.strides, strides) and kind is Kind.TEMP:
        return replace(ref, strides=strides)
    if ref.strides == strides:
        return ref
    copy = graph.layouts.copies.get((ref, strides))
    if copy is None and is_constant(ref) and kind is Kind.TEMP:
        copy = graph.layouts.copies[ref, strides] = _restrided_constant(graph, ref, strides)
    if copy is None:
        name = f"{ref.buffer.name}_laid{len(graph.layouts.copies)}"
        copy = graph.fresh(name, ref, ref.shape, strides, kind)
        value = read(ref, positions(ref.shape))
        graph.steps.append(graph.kernel("aten.relayout", store_of(copy, value), node))
        graph.layouts.copies[ref, strides] = copy
        graph.layouts.copies[copy, ref.strides] = ref
    return copy


def as_returned(graph: Lowering, node: torch.fx.Node, ref: Ref, k: int = 0) -> Ref:
    """Returns the k-th result of a library call; if the program sees it, with the strides that the program
    sees."""
    if (node, k) not in graph.visible:
        return ref
    val = node.meta["val"]
    seen = val[k] if isinstance(val, (list, tuple)) else val
    return restrided(graph, ref, tuple(map(number, seen.stride())), node, Kind.OUTPUT)


def _restrided_constant(graph: Lowering, ref: Ref, strides: tuple[int, ...]) -> Ref:
    """Returns a constant with the same values and other strides."""
    tensor = graph.tensor(view_of(ref))
    with computing():
        copy = torch.empty_strided(ref.shape, strides, dtype=tensor.dtype, device=tensor.device)
        copy.copy_(tensor)
    buffer = graph.buffer(f"{ref.buffer.name}_laid{len(graph.layouts.copies)}", copy, Kind.CONSTANT)
    graph.constants[buffer] = copy
    return graph.ref(buffer, copy)
