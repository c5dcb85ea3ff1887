"""A backward graph for the case that some outputs of the program got no gradient.

Autograd does not run what nothing flows into: a missing gradient is not zeros, as zero times infinity is not zero.  A sum of what
comes from there and from elsewhere is what comes from elsewhere; other functions of several gradients are given zeros.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from frameloom.capture.carried import given_sizes
from frameloom.capture.graph import Backward, copy_node

Node = torch.fx.Node
aten = torch.ops.aten


@dataclass(frozen=True)
class Partial:
    """`graph` takes what is saved and the gradients that are there; `ends`: the entries of `Backward.inputs` that get one."""

    graph: torch.fx.Graph
    ends: tuple[int, ...]
    reads: tuple[int, ...]  # which of what is saved it reads


def partial_backward(how: Backward, missing: Set[int]) -> Partial:
    """`missing`: entries of `how.tangents`."""
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    nodes = list(how.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    first = len(placeholders) - len(how.tangents)
    reach: dict[Node, set[int]] = {p: {k} for k, p in enumerate(placeholders[first:])}
    for n in nodes:
        for a in n.all_input_nodes:
            if a in reach:
                reach.setdefault(n, set()).update(reach[a])

    def is_gone(n: Node) -> bool:
        return n in reach and reach[n] <= missing

    def operand(n: Node) -> Node:
        return _zeros(graph, n) if is_gone(n) else copies[n]

    for n in nodes[:-1]:
        if is_gone(n):
            continue
        if (other := _other_summand(n, is_gone)) is not None:
            copies[n] = copies[other]
        else:
            copies[n] = copy_node(graph, n, operand)
    results = nodes[-1].args[0]
    ends = tuple(k for k, n in enumerate(results) if not is_gone(n))
    graph.output(tuple(copies[results[k]] for k in ends))
    for n in reversed(graph.nodes):
        if n.op not in ("placeholder", "output") and not n.users:
            graph.erase_node(n)
    reads = tuple(k for k, p in enumerate(placeholders[:first]) if copies[p].users)
    return Partial(graph, ends, reads)


def _other_summand(n: Node, is_gone: Any) -> Node | None:
    """What is left of a sum of two gradients."""
    if n.target is not aten.add.Tensor or len(n.args) != 2 or n.kwargs:
        return None
    a, b = n.args
    if not isinstance(a, Node) or not isinstance(b, Node) or is_gone(a) == is_gone(b):
        return None
    other = b if is_gone(a) else a
    mine, left = n.meta["val"], other.meta["val"]
    same = (mine.shape, mine.dtype, mine.stride()) == (left.shape, left.dtype, left.stride())
    return other if same else None


def _zeros(graph: torch.fx.Graph, like: Node) -> Node:
    val = like.meta["val"]
    given = {"dtype": val.dtype, "device": val.device}
    sizes = given_sizes(graph)
    shape, strides = ([*map(sizes.node, numbers)] for numbers in (val.shape, val.stride()))
    made = graph.call_function(aten.full.default, (shape, 0), given)
    made.meta.update(like.meta)
    if val.is_contiguous():
        return made
    empty = graph.call_function(aten.empty_strided.default, (shape, strides), given)
    empty.meta.update(like.meta)
    result = graph.call_function(aten.copy.default, (empty, made))
    result.meta.update(like.meta)
    return result
