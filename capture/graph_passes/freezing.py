"""options={"freezing": True}: parameters and buffers of modules in evaluation mode become constants of the
graph.

Everything that is computed from them alone can then be computed once, when the graph is compiled. A call may
use the graph as long as guards find the same tensors, in the same memory, without writes since then:
`load_state_dict`, an optimizer's step, `p.data = ...`, another parameter in its place and `train()` make
another entry. Writes that autograd does not count are not noticed: through `p.data`, through NumPy arrays or
other memory that a parameter shares.

The graph holds aliases (`detach`) of the tensors: their memory at the time of the compile stays allocated as
long as the entry exists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.guards.raw_attributes import instance_dict
from frameloom.capture.values.module import ModuleValue
from frameloom.debug import notice

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.recording.captured_graph import CapturedGraph

REGISTRIES = ("_parameters", "_buffers")


def frozen(t: Tracer, graph: CapturedGraph) -> CapturedGraph:
    """Returns the graph with constants for what may be frozen, and adds guards for these."""
    if not _capture.tracks_versions():
        notice("freezing", "this PyTorch does not show what is written to; nothing is frozen")
        return graph
    modules = {id(m.origin): m for m in t.known_modules()}
    places = [n for n in graph.graph.nodes if n.op == "placeholder"]
    seen = set(_seen(graph.graph))
    kept, names = [], []
    for position, (origin, tensor, place) in enumerate(
        zip(graph.inputs, graph.examples, places, strict=True)
    ):
        module = _owner(modules, origin)
        if module is None or position in graph.mutated or place in seen or tensor.is_inference():
            kept.append(position)
            continue
        with torch.no_grad():
            alias, version = tensor.detach(), tensor._version
        t.guards.add(module.origin.child("dict").child("key", "training"), "equal", False)
        t.guards.add(origin, "unchanged", (alias, version))
        names.append(_make_constant(graph, place, alias))
    if len(kept) == len(places):
        return graph
    return replace(
        graph,
        inputs=tuple(graph.inputs[k] for k in kept),
        examples=tuple(graph.examples[k] for k in kept),
        mutated=tuple(kept.index(k) for k in graph.mutated),
        frozen=tuple(names),
    )


def _owner(modules: dict[int, ModuleValue], origin: Origin) -> Any:
    """Returns the module in evaluation mode whose parameter or buffer it is; None if there is none."""
    table = origin.base
    if origin.kind != "key" or table is None or table.key not in REGISTRIES or table.base is None:
        return None
    if table.base.kind != "dict" or table.base.base is None:
        return None
    module = modules.get(id(table.base.base))
    if module is None or "training" in module.attributes:
        return None
    return module if (instance_dict(module.real) or {}).get("training") is False else None


def _seen(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yields inputs that the program gets back directly or as views: those must be the program's own
    tensors."""
    waiting = [n for n in graph.output_node().all_input_nodes]
    known = set(waiting)
    while waiting:
        node = waiting.pop()
        if node.op == "placeholder":
            yield node
        for source in node.all_input_nodes if _may_be_view(node) else ():
            if source not in known:
                known.add(source)
                waiting.append(source)


def _may_be_view(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


def _make_constant(graph: CapturedGraph, place: torch.fx.Node, tensor: torch.Tensor) -> str:
    name = f"frozen_{place.name}"
    graph.constants.register_buffer(name, tensor)
    with graph.graph.inserting_before(place):
        node = graph.graph.create_node("get_attr", name)
    node.meta.update(place.meta)
    place.replace_all_uses_with(node)
    graph.graph.erase_node(place)
    return name
