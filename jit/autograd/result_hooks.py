"""Supports hooks and retained gradients on a graph's results.

In plain PyTorch, most nodes have only one result.  If a node has several, autograd calls the hooks of all of
them in each pass through the node.  One of them alone cannot be named as the end of a pass.  And after a
write to a result, autograd confuses the retained gradients of two results, because it searches by the
result's number after the write.  So each of several results gets a node of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

register = torch._C._FunctionBase._register_hook_dict
lift = torch.ops.aten.lift.default


def give_own_node(tensor: torch.Tensor) -> None:
    """Adds a node to the tensor's history, in place; the node only passes its gradient on."""
    # For complex tensors, PyTorch has no such op that does not count as a write.
    if tensor.is_complex():
        with torch.autograd.grad_mode._unsafe_preserve_version_counter(tensor):
            tensor.transpose_(0, 0)
    else:
        lift(tensor)


class Hooks(OrderedDict[int, Any]):
    """The hooks of a tensor: `Tensor.register_hook` fills it, and autograd reads it.  Our nodes may pass None
    to a result whose gradient is not observed; eager's nodes do not, so hooks are not called with None."""

    def __setitem__(self, number: int, hook: Callable[[Any], Any]) -> None:
        super().__setitem__(number, lambda given: None if given is None else hook(given))


def register_hooks(node: Any, tensor: Any) -> None:
    """Replaces a node's `_register_hook_dict`, which `Tensor.register_hook` calls for the first hook of a
    tensor."""
    tensor._backward_hooks = Hooks()
    register(node, tensor)
