"""Hooks of a graph's results.  Autograd calls those of all results of a node in every pass through it, with None where no gradient came; in plain
PyTorch such a result is not on the way."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

register = torch._C._FunctionBase._register_hook_dict


class Hooks(OrderedDict[int, Any]):
    """What `Tensor.register_hook` fills, and autograd reads."""

    def __setitem__(self, number: int, hook: Callable[[Any], Any]) -> None:
        super().__setitem__(number, lambda given: None if given is None else hook(given))


def register_hooks(node: Any, tensor: Any) -> None:
    """As a node's `_register_hook_dict`, which `Tensor.register_hook` calls for a tensor's first one."""
    tensor._backward_hooks = Hooks()
    register(node, tensor)
