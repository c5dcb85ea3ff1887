"""What capture hands to a backend: the recorded graph, where its inputs come from, and facts the guards need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.fx


@dataclass(frozen=True)
class CapturedGraph:
    """One captured piece of a program.

    `graph` is a functional ATen graph: one placeholder per entry of `inputs`, tensors returned as one tuple; mutations
    of inputs are `aten.copy_` nodes at its end, in program order.  Running it on the real inputs does
    what the program did: values, strides, aliasing of the outputs, mutation.  Every node's meta has "val" (the fake
    value; a tuple for several results) and "stack" (the user's line).
    """

    graph: torch.fx.Graph
    constants: torch.nn.Module  # the tensors that `get_attr` nodes name
    inputs: tuple[Any, ...]  # the key each input was registered with (an origin)
    examples: tuple[torch.Tensor, ...]  # the real tensors of the captured call, in the same order
    mutated: tuple[int, ...]  # positions of inputs that the graph writes to
    n_ops: int  # recorded ATen ops, views not counted
    frozen: tuple[str, ...] = ()  # names of constants that are parameters and buffers of modules

    @cached_property
    def gm(self) -> torch.fx.GraphModule:
        """The graph as a module.  Making one writes and compiles its Python code, which only those who ask for it pay for."""
        return torch.fx.GraphModule(self.constants, self.graph)


def without_examples(captured: CapturedGraph) -> CapturedGraph:
    """For keeping: the user's tensors should not live as long as a report does."""
    return replace(captured, examples=())
