"""Marks on nodes that are recorded during a backward pass: the autograd node that computes them, and sums.

Sums of the gradients of one tensor: autograd adds to the first one in place if it is the only owner: the
sum then has the layout of the first one, also in dimensions of size 1."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from frameloom.capture.shapes.iteration import dense_like, is_dense, same_sizes
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import is_view

Node = torch.fx.Node
# in the meta of a node recorded by a backward pass: the number of the autograd node that computes it
FROM = "from"
FUNCTION = "function"  # the same, for a call of a Function of the program
aten = torch.ops.aten
# The formula for `clamp` does the same with masks, but not for tensor subclasses, as those of the recorder.
IN_PLACE = (aten.add.Tensor, aten.logical_and.default, aten.logical_or.default)
ADDED = "added"  # in the meta of such a sum


def note_node(node: Node, kind: str = FROM) -> None:
    """Notes that autograd's current node computes this node."""
    if (of := torch._C._current_autograd_node()) is not None:  # type: ignore[attr-defined]
        node.meta[kind] = of._sequence_nr()


def note_sum(node: Node) -> None:
    """Marks a sum that was just recorded for a derivative."""
    if node.target not in IN_PLACE or len(node.args) != 2 or node.kwargs:
        return
    first, second = node.args
    if not isinstance(first, Node) or not isinstance(second, Node):
        return
    if node.target is not aten.add.Tensor:
        node.meta[ADDED] = True
        return
    # Both summands belong to one autograd node if a formula contains the sum; but a node may also give one
    # tensor several gradients.
    if FROM not in first.meta:
        return
    if first.meta[FROM] == second.meta.get(FROM, first.meta[FROM]) and not _gives_several():
        return
    if len(first.users) == 1 and not is_view(first):
        node.meta[ADDED] = True


def _gives_several() -> bool:
    """Whether autograd's current node has several results for one tensor, as that of `x * x`."""
    node = torch._C._current_autograd_node()  # type: ignore[attr-defined]
    edges = [edge for edge in node.next_functions if edge[0] is not None] if node else []
    return len(set(edges)) < len(edges)


def summed(node: Node, meta: Any) -> Any:
    """Returns the layout of `node`, which would be that of `meta` without the sum in place."""
    if ADDED not in node.meta:
        return meta
    first: Any = node.args[0]
    like: Fake = first.meta["val"]
    same = like.dtype is meta.dtype and same_sizes(like.shape, meta.shape) and is_dense(like)
    return dense_like(like.meta) if same else meta
