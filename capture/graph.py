"""What capture hands to a backend: the recorded graph, where its inputs come from, and facts the guards need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.fx


@dataclass(frozen=True)
class CapturedGraph:
    """One captured piece of a program.

    `gm` is a functional ATen graph: one placeholder per entry of `inputs`, tensors returned as one tuple; mutations
    of inputs are `aten.copy_` nodes at its end, in program order.  Running `gm` on the real inputs does
    what the program did: values, strides, aliasing of the outputs, mutation.  Every node's meta has "val" (the fake
    value; a tuple for several results) and "stack" (the user's line).
    """

    gm: torch.fx.GraphModule
    inputs: tuple[Any, ...]  # the key each input was registered with (an origin)
    examples: tuple[torch.Tensor, ...]  # the real tensors of the captured call, in the same order
    mutated: tuple[int, ...]  # positions of inputs that the graph writes to
    n_ops: int  # recorded ATen ops, views not counted
