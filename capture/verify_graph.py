"""Whether a captured graph says of each view what follows from the tensor that it is a view of: lowering reads memory as the view lies."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from frameloom.capture.relaid import infers_alike
from frameloom.capture.saved import is_view
from frameloom.capture.sized import has_sizes
from frameloom.ir.size import is_size


def verify_views(graph: torch.fx.Graph) -> None:
    """Raises AssertionError, which names the node.  Graphs whose sizes vary are left out: asking about theirs notes what is assumed."""
    if any(_varies(p.meta["val"]) for p in graph.find_nodes(op="placeholder")):
        return
    for node in graph.nodes:
        if is_view(node) and not infers_alike(node):
            val = node.meta["val"]
            raise AssertionError(
                f"{node.format_node()} lies as {val.stride()} at {val.storage_offset()}, which its operand does not"
            )


def _varies(given: Any) -> bool:
    return (
        has_sizes((*given.shape, *given.stride()))
        if isinstance(given, torch.Tensor)
        else is_size(given)
    )
