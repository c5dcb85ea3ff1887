"""Whether the calls of a graph can be repeated: what they do besides computing can be undone."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.tensors.schema import draws, may_draw
from frameloom.ir.library import is_collective

if TYPE_CHECKING:
    from frameloom.capture.recording.captured_graph import CapturedGraph

# Writes to inputs, which come after everything that may fail, and checks.
OWN_EFFECTS = (torch.ops.aten.copy_.default, torch.ops.aten._assert_async.msg)


def is_rerunnable(graph: CapturedGraph) -> bool:
    """Whether everything that the graph does, besides computing and writing to inputs, can be undone."""
    return all(map(_can_be_repeated, graph.graph.nodes))


@functools.cache
def _only_computes(target: Any) -> bool:
    """Whether an op that draws no random numbers has no other effects. PyTorch's own ops that return nothing
    and write nothing are checks; the effects of other such ops are unknown."""
    schema = target._schema
    changes = schema.is_mutable or not (schema.returns or target.namespace == "aten")
    return target in OWN_EFFECTS or not (changes or is_collective(str(target)))


@functools.cache
def _can_always_be_repeated(target: Any) -> bool:
    """Whether every call of the op can be repeated. Tested first, since it holds for most ops."""
    if not isinstance(target, torch._ops.OpOverload):
        return True
    return _only_computes(target) and not may_draw(target)


def _can_be_repeated(node: torch.fx.Node) -> bool:
    if _can_always_be_repeated(node.target):
        return True
    if not draws(node):
        return _only_computes(node.target)
    results = node.meta["val"]
    first = results[0] if isinstance(results, (list, tuple)) else results
    given = (*node.args, *node.kwargs.values())
    return first.device.type == "cpu" and not any(isinstance(a, torch.Generator) for a in given)
