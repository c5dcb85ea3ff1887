"""Outputs of which others of the same call are computed.  Autograd knows all as results of one node, and what flows to one inside of it passes by.

Such outputs keep hooks for themselves, where autograd does not find them.  Where there are some in a backward pass, it runs op by
op, and calls them; where `retain_grad()` was asked for, what comes from inside is added.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.graph import CapturedGraph, behind

if TYPE_CHECKING:
    from frameloom.op_by_op import OpByOp

aten = torch.ops.aten


def depended_on(captured: CapturedGraph) -> tuple[int, ...]:
    """The results from which a gradient comes to another result."""
    how = captured.backward
    assert how is not None
    graph = how.with_functions or captured.graph
    results = next(iter(reversed(graph.nodes))).args[0]
    ends: dict[int, Any] = {k: results[k] for k in how.tangents}
    seen = behind((n for end in ends.values() for n in _followed(end)), _followed)
    shown = {o for o in how.outputs if isinstance(o, int)}
    return tuple(k for k, end in ends.items() if end in seen and k in shown)


def _followed(node: torch.fx.Node) -> list[torch.fx.Node]:
    """What gets a gradient from it."""
    if node.target is aten.detach.default or not node.meta.get("grad", True):
        return []
    return [n for n in node.all_input_nodes if _has_gradient(n.meta.get("val"))]


def _has_gradient(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_has_gradient, value))
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


class Watched:
    """One such output of one call."""

    __slots__ = ("hooks", "number", "tensor")

    def __init__(self, number: int, tensor: torch.Tensor) -> None:
        self.number, self.tensor = number, weakref.ref(tensor)
        # What `Tensor.register_hook` fills; it tells autograd where a tensor has none.
        self.hooks: OrderedDict[int, Any] = OrderedDict()
        tensor._backward_hooks = self.hooks

    def is_asked(self) -> bool:
        return bool(self.hooks) or self.retains()

    def retains(self) -> bool:
        tensor = self.tensor()
        return tensor is not None and tensor.retains_grad


def watch(results: Sequence[Any], numbers: Sequence[int]) -> None:
    """Once a call is made."""
    node = results[numbers[0]].grad_fn
    if node is not None:
        node.watched = [Watched(k, results[k]) for k in numbers]


def with_hooks(
    watched: Sequence[Watched], op_by_op: OpByOp, inputs: Callable[[], list[Any]], others: Any,
    given: Sequence[Any],
) -> list[Any] | None:  # fmt: skip
    """In a backward pass: the gradients of the inputs that get one where somebody looks; None where nobody does.  `given`: the gradients of the
    results."""
    asked = [w for w in watched if w.is_asked()]
    if not asked:
        return None
    kept: dict[int, Any] = {}

    def look(results: Sequence[Any]) -> None:
        for w in asked:
            if results[w.number].requires_grad:
                for hook in list(w.hooks.values()):
                    results[w.number].register_hook(hook)
                if w.retains():
                    results[w.number].retain_grad()
                    kept[w.number] = results[w.number]

    made = op_by_op.gradients(inputs(), others, given, look, torch.is_grad_enabled())
    for w in asked:
        tensor = w.tensor()
        if tensor is not None and w.number in kept and kept[w.number].grad is not None:
            whole, own = kept[w.number].grad, given[w.number]
            # What was given from outside is there already.
            inside = whole if own is None else whole - own
            tensor.grad = inside if tensor.grad is None else tensor.grad + inside
    return made
