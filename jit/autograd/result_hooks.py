"""What the program hangs on a graph's results: hooks, and gradients that are retained.

In plain PyTorch, most results are the only ones of their nodes.  Of several, autograd calls the hooks of all in every pass through their node, cannot name one of
them as an end alone, and takes one's retained gradient for another's where a result is written to: it looks for it by its number behind the write.  So
each of several results gets a node of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

register = torch._C._FunctionBase._register_hook_dict
lift = torch.ops.aten.lift.default


def give_own_node(tensor: torch.Tensor) -> None:
    """The tensor stays itself, but for its history, which begins with a node then that only hands its gradient on."""
    if tensor.is_complex():  # for which PyTorch has no such op that writes nothing
        with torch.autograd.grad_mode._unsafe_preserve_version_counter(tensor):
            tensor.transpose_(0, 0)
    else:
        lift(tensor)


class Hooks(OrderedDict[int, Any]):
    """What `Tensor.register_hook` fills, and autograd reads.  Other nodes hand None on to a result where nobody looks, as eager's do not."""

    def __setitem__(self, number: int, hook: Callable[[Any], Any]) -> None:
        super().__setitem__(number, lambda given: None if given is None else hook(given))


def register_hooks(node: Any, tensor: Any) -> None:
    """As a node's `_register_hook_dict`, which `Tensor.register_hook` calls for a tensor's first one."""
    tensor._backward_hooks = Hooks()
    register(node, tensor)
