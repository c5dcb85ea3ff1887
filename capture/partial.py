"""A backward graph for the case that some outputs of the program got no gradient.

Autograd does not run what nothing flows into: a missing gradient is not zeros, as zero times infinity is not zero.  A sum of what
comes from there and from elsewhere is what comes from elsewhere; other functions of several gradients are given zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from frameloom.capture.added import ADDED
from frameloom.capture.carried import given_sizes
from frameloom.capture.fake import Fake
from frameloom.capture.flow import TOTAL, reach
from frameloom.capture.graph import Backward, behind, copy_node
from frameloom.capture.sized import empty_strided, strides_of
from frameloom.ir.size import Size

Node = torch.fx.Node
aten = torch.ops.aten
LEFT = "left"  # in the meta of what is left of a sum, which lies otherwise than the sum that `val` is of


@dataclass(frozen=True)
class Partial:
    """`graph` takes what is saved and the gradients that are there; `ends`: the entries of what was wanted that get one."""

    graph: torch.fx.Graph
    ends: tuple[int, ...]
    flows: tuple[
        frozenset[int], ...
    ]  # per entry: the entries of `Backward.tangents` that are there and that it depends on
    reads: tuple[int, ...]  # which of what is saved it reads


def partial_backward(
    how: Backward,
    missing: Set[int],
    whole: bool = False,
    wanted: Sequence[Node] | None = None,
    only_read: bool = False,
) -> Partial:
    """`missing`: entries of `how.tangents`; `whole`: whether those that are given are all that comes to such a result, from others of the graph,
    too; `wanted`: nodes of `how.graph` in place of its results; `only_read`: whether the graph takes nothing that it does not read."""
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    nodes = list(how.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    first = len(placeholders) - len(how.tangents)
    instead = _given_for(nodes, placeholders[first:]) if whole else {}
    results = [instead.get(n, n) for n in nodes[-1].args[0]] if wanted is None else wanted
    # Of a graph with many results, each of many parts takes only what it needs.
    needed = behind(results, lambda n: [instead.get(x, x) for x in n.all_input_nodes])
    needed.update(placeholders[first:] if only_read else placeholders)
    flows = reach((n for n in nodes if n in needed), placeholders[first:], instead)

    def is_gone(n: Node) -> bool:
        return n in flows and flows[n] <= missing

    def operand(n: Node) -> Node:
        n = instead.get(n, n)
        return _zeros(graph, n) if is_gone(n) else copies[n]

    for n in nodes:
        if n not in needed or is_gone(n):
            continue
        if (other := _other_summand(n, is_gone, instead)) is not None:
            copies[n] = _in_place_of(graph, n, other, copies[other])
        else:
            copies[n] = copy_node(graph, n, operand)
    ends = tuple(k for k, n in enumerate(results) if not is_gone(n))
    graph.output(tuple(copies[results[k]] for k in ends))
    saved = [(k, copies[p]) for k, p in enumerate(placeholders[:first]) if p in copies]
    for n in reversed(graph.nodes):
        if n.op not in ("placeholder", "output") and not n.users:
            graph.erase_node(n)
    reads = tuple(k for k, p in saved if p.users)
    for _, p in saved if only_read else ():
        if not p.users:
            graph.erase_node(p)
    there = tuple(frozenset(flows.get(results[k], ())) - missing for k in ends)
    return Partial(graph, ends, there, reads)


def _given_for(nodes: Iterable[Node], seeds: Sequence[Node]) -> dict[Node, Node]:
    """What the results' gradients are computed as, and the placeholders for them."""
    named = {s.name: s for s in seeds}
    return {n: named[t] for n in nodes for t in n.meta.get(TOTAL, ()) if t in named}


def _other_summand(n: Node, is_gone: Any, instead: Mapping[Node, Node]) -> Node | None:
    """What is left of a sum of two gradients."""
    if n.target is not aten.add.Tensor or len(n.args) != 2 or n.kwargs:
        return None
    a, b = (instead.get(x, x) if isinstance(x, Node) else x for x in n.args)
    if not isinstance(a, Node) or not isinstance(b, Node) or is_gone(a) == is_gone(b):
        return None
    other = b if is_gone(a) else a
    mine, left = n.meta["val"], other.meta["val"]
    return other if (mine.shape, mine.dtype) == (left.shape, left.dtype) else None


def _in_place_of(graph: torch.fx.Graph, n: Node, other: Node, copy: Node) -> Node:
    """`copy`, of `other`, for those who read `n`."""
    mine, left = n.meta["val"], other.meta["val"]
    if (mine.stride(), mine.storage_offset()) == (left.stride(), left.storage_offset()):
        return copy
    made = graph.call_function(aten.alias.default, (copy,))
    made.meta.update(n.meta)
    made.meta.pop(ADDED, None)
    made.meta[LEFT] = True
    return made


def _zeros(graph: torch.fx.Graph, like: Node) -> Node:
    val = like.meta["val"]
    given = {"dtype": val.dtype, "device": val.device}
    sizes = given_sizes(graph)
    # What is repeated has one element in memory.
    repeated = [
        not isinstance(s, Size) and s == 0 and (isinstance(n, Size) or n != 1)
        for n, s in zip(val.shape, val.stride(), strict=True)
    ]
    there = [1 if r else n for n, r in zip(val.shape, repeated, strict=True)]

    def node(func: Any, args: tuple[Any, ...], shape: Any, strides: Any, **kwargs: Any) -> Node:
        made = graph.call_function(func, args, kwargs)
        fake = Fake(empty_strided(shape, strides, val.dtype), val.device)
        made.meta.update(like.meta, val=fake)
        return made

    shape, strides = ([*map(sizes.node, numbers)] for numbers in (there, val.stride()))
    made = node(aten.full.default, (shape, 0), there, strides_of(there), **given)
    if not val.is_contiguous() and not all(repeated):
        empty = node(aten.empty_strided.default, (shape, strides), there, val.stride(), **given)
        made = node(aten.copy.default, (empty, made), there, val.stride())
    if any(repeated):
        whole = [*map(sizes.node, val.shape)]
        made = node(aten.expand.default, (made, whole), val.shape, val.stride())
    return made
