"""Calls of functions made by `torch.jit.script` and `torch.jit.trace`.

TorchScript's interpreter runs them, and its ops come to the dispatcher, where they are recorded. Its optimizer
is off meanwhile: it would put several ops into one kernel, and learn from tensors without data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows_kind
from frameloom.capture.tensors.cast_cache import autocast_devices
from frameloom.capture.values.base import Value
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

# What does more than compute, or computes where the recorder does not see it.
REFUSED = frozenset(
    {"prim::Print", "prim::PythonOp", "prim::fork", "prim::SetAttr", "prim::CallMethod", "prim::rpc_async", "aten::warn",
     "aten::wait", "aten::manual_seed", "aten::save", "aten::set_grad_enabled", "prim::Enter", "prim::Exit"}
)  # fmt: skip
# The value of a tensor in TorchScript.
OF_DATA = frozenset({"aten::Bool", "aten::Int", "aten::Float", "aten::IntImplicit", "aten::FloatImplicit", "aten::item", "aten::tolist"})  # fmt: skip


@knows_kind(torch.jit.ScriptFunction)
def _script(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Value:
    if autocast_devices() or not computes_only(function.inlined_graph):
        raise Break("library_call", f"{function.name}(...), which TorchScript runs")
    if any(
        node.kind() in OF_DATA and of_tensor(node.inputsAt(0))
        for node in _nodes(function.inlined_graph)
    ):
        raise Break("item", f"{function.name}(...)")
    return t.torch_call(run_script, [t.pinned(function), *args], kwargs)


def run_script(function: Any, *args: Any, **kwargs: Any) -> Any:
    with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        return function(*args, **kwargs)


def computes_only(graph: Any) -> bool:
    return not any(node.kind() in REFUSED or _is_constant_tensor(node) for node in _nodes(graph))


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def of_tensor(value: Any) -> bool:
    return str(value.type().kind()) == "TensorType"


def _is_constant_tensor(node: Any) -> bool:
    """Whether the node is a tensor that a trace has met, which is no input of the recorded graph. Numbers of the
    program are tensors in a trace, too, but their dtypes do not count."""
    if node.kind() != "prim::Constant" or not of_tensor(node.output()):
        return False
    tensor = node.t("value") if node.hasAttribute("value") else None
    if tensor is None or tensor.dim() > 0:
        return True
    other = torch.float32 if tensor.is_floating_point() else torch.int32
    return torch.result_type(tensor, torch.ones((), dtype=other)) is not other
