"""Finds tensors that have plain strides for any sizes of 1, from the recorded ops alone. This is faster than
trying the calls (symbolic/chain_probe.py).

A plain operand has the strides of a fresh tensor; an expanded one is a plain one that is repeated. In both,
strides never grow from the outer dimensions to the inner ones. So kernels that order dimensions by strides
exchange none, also for sizes of 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import getitem
from typing import Any

import torch

from frameloom.capture.shapes.pointwise import is_pointwise
from frameloom.capture.shapes.registry import FRESH, KEEPING
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import is_view
from frameloom.capture.tensors.sized import has_contiguous_strides

Node = torch.fx.Node
aten = torch.ops.aten
FORMATS = (None, torch.contiguous_format, torch.preserve_format)


def base_of(node: Node) -> Node:
    """Returns the node that `node` is a view of, or `node`."""
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def inputs_are_plain(graph: torch.fx.Graph) -> bool:
    """Whether all inputs are plain. For others, the derivative of a product reads the strides: its result may
    be a transposed view if sizes are 1."""
    values = (n.meta["val"] for n in graph.find_nodes(op="placeholder"))
    return all(has_contiguous_strides(value) for value in values if isinstance(value, Fake))


def is_surely_plain(node: Node, proven: set[Node]) -> bool:
    """Whether the result of `node` is plain also if sizes are 1, in a graph with plain inputs. `proven`:
    nodes that are; new ones are added."""
    passed, stack = {node}, [node]
    while stack:
        operands = _operands(stack.pop())
        if operands is None:
            return False
        new = [n for n in operands if n not in passed and n not in proven]
        passed.update(new)
        stack += new
    proven |= passed
    return True


def _operands(node: Node) -> Iterable[Node] | None:
    """Returns nodes such that the result is plain if theirs are; None if there is no such rule."""
    value = node.meta.get("val")
    if not isinstance(value, Fake) or not has_contiguous_strides(value):
        return None
    if node.op == "placeholder" or not value.shape:
        return ()
    target: Any = node.target
    if target is getitem:
        node = node.args[0]  # type: ignore[assignment]
        target = node.target
    if target in FRESH:
        return ()
    tensors = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Fake)]
    if target in KEEPING:
        if target is aten.sum.dim_IntList and base_of(tensors[0]).op == "placeholder":
            return None  # if all summed sizes are 1, autograd passes the gradient on as it is
        return tensors if node.kwargs.get("memory_format") in FORMATS else None
    if not isinstance(target, torch._ops.OpOverload) or not is_pointwise(target):
        return None
    return [n.args[0] if n.target is aten.expand.default else n for n in tensors]  # type: ignore[misc]
