"""A backward graph for the case that some outputs of the program got no gradient.

Autograd does not run what no gradient flows into. A missing gradient is not zeros, because zero times
infinity is not zero. A sum with a missing summand is the other summand; other functions of several gradients
get zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from functools import cached_property, partial
from typing import Any

import torch
import torch.fx

from frameloom.capture.autograd.gradient_flow import TOTAL, reach
from frameloom.capture.recording.backward_marks import ADDED, FUNCTION
from frameloom.capture.recording.captured_graph import Backward, behind, call_like, copy_node
from frameloom.capture.symbolic.saved_sizes import given_sizes, is_size
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import is_view
from frameloom.capture.tensors.sized import empty_strided, strides_of
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Size

Node = torch.fx.Node
aten = torch.ops.aten
# On nodes that have the layout of their operand instead of that of `val`: the remaining summand of a sum, and
# zeros.
LEFT = "left"


class Partial:
    """A part of a backward graph. `graph` takes the saved tensors and the gradients that exist; it is made on
    first use."""

    def __init__(
        self,
        how: Backward,
        missing: Set[int],
        whole: bool = False,
        wanted: Sequence[Node] | None = None,
        only_read: bool = False,
        left_out: Set[int] = frozenset(),
    ) -> None:
        """`missing`: entries of `how.tangents` without a gradient; `whole`: whether a given gradient already
        includes what other results of the graph add to it; `wanted`: nodes of `how.graph` in place of its
        results; `only_read`: whether the graph takes no inputs that it does not read; `left_out`: entries of
        the results that are not needed."""
        nodes = list(how.graph.nodes)
        self._placeholders = [n for n in nodes if n.op == "placeholder"]
        self._n_saved = len(self._placeholders) - len(how.tangents)
        seeds = self._placeholders[self._n_saved :]
        self._missing, self._only_read = missing, only_read
        self._instead = _given_for(nodes, seeds) if whole else {}
        instead = self._instead
        results = [instead.get(n, n) for n in nodes[-1].args[0]] if wanted is None else wanted  # type: ignore[arg-type, union-attr]
        needed = behind(results, lambda n: [instead.get(x, x) for x in n.all_input_nodes])
        needed.update(seeds)
        self._flows = reach((n for n in nodes if n in needed), seeds, instead)
        # The entries of the results that get a gradient.
        self.ends = tuple(
            k for k, n in enumerate(results) if k not in left_out and not self._is_gone(n)
        )
        self._ends = [results[k] for k in self.ends]
        # Each part of a graph with many results takes only the nodes that it needs.
        needed = behind(self._ends, self._operands)
        self._nodes = [n for n in nodes if n in needed and n.op != "placeholder"]
        self._read = needed

    def _is_gone(self, n: Node) -> bool:
        return n in self._flows and self._flows[n] <= self._missing

    def _operands(self, n: Node) -> list[Node]:
        """Returns the operands that its copy is computed from."""
        if (other := self._other_summand(n)) is not None:
            return [other]
        operands = (self._instead.get(x, x) for x in n.all_input_nodes)
        return [x for x in operands if not self._is_gone(x)]

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """The saved tensors that the graph reads, by position."""
        saved = enumerate(self._placeholders[: self._n_saved])
        if not any(map(is_size, self._placeholders)):
            return tuple(k for k, p in saved if p in self._read)
        # zeros in place of missing gradients read sizes, too
        places = self.graph.find_nodes(op="placeholder")
        return tuple(k for k, _ in saved if places[k].users)

    @cached_property
    def graph(self) -> torch.fx.Graph:
        graph = torch.fx.Graph()
        copies: dict[Node, Node] = {}

        def operand(n: Node, zeros: Callable[[torch.fx.Graph, Node], Node] = _zeros) -> Node:
            n = self._instead.get(n, n)
            return zeros(graph, n) if self._is_gone(n) else copies[n]

        for k, n in enumerate(self._placeholders):
            is_left = self._only_read and k < self._n_saved and n not in self._read
            if not is_left and not self._is_gone(n):
                copies[n] = copy_node(graph, n, operand)
        for n in self._nodes:
            if (other := self._other_summand(n)) is not None:
                copies[n] = _in_place_of(graph, n, other, copies[other])
            else:
                zeros = _plain_zeros if FUNCTION in n.meta else _zeros
                copies[n] = copy_node(graph, n, partial(operand, zeros=zeros))
                # Autograd does not add in place to a view, which may be what remains of the first summand.
                if ADDED in n.meta and is_view(self._left_of(n.args[0])):  # type: ignore[arg-type]
                    del copies[n].meta[ADDED]
        graph.output(tuple(copies[n] for n in self._ends))
        return graph

    def _other_summand(self, n: Node) -> Node | None:
        """Returns the remaining summand of a sum of two gradients, or None."""
        if n.target is not aten.add.Tensor or len(n.args) != 2 or n.kwargs:
            return None
        a, b = (self._instead.get(x, x) if isinstance(x, Node) else x for x in n.args)
        if not isinstance(a, Node) or not isinstance(b, Node):
            return None
        if self._is_gone(a) == self._is_gone(b):
            return None
        other = b if self._is_gone(a) else a
        mine, left = n.meta["val"], other.meta["val"]
        return other if (mine.shape, mine.dtype) == (left.shape, left.dtype) else None

    def _left_of(self, n: Node) -> Node:
        """Returns what remains of a sum that may have lost summands."""
        while (other := self._other_summand(n)) is not None:
            n = other
        return n


def _given_for(nodes: Iterable[Node], seeds: Sequence[Node]) -> dict[Node, Node]:
    """Maps nodes that are total gradients of results to the placeholders of these gradients."""
    named = {s.name: s for s in seeds}
    return {n: named[t] for n in nodes for t in n.meta.get(TOTAL, ()) if t in named}


def _in_place_of(graph: torch.fx.Graph, n: Node, other: Node, copy: Node) -> Node:
    """Returns `copy`, a copy of `other`, for the readers of `n`."""
    mine, left = n.meta["val"], other.meta["val"]
    if (mine.stride(), mine.storage_offset()) == (left.stride(), left.storage_offset()):
        return copy
    return _left(graph, copy, n)


def _left(graph: torch.fx.Graph, copy: Node, n: Node) -> Node:
    made = call_like(graph, n, aten.alias.default, (copy,), **{LEFT: True})
    made.meta.pop(ADDED, None)
    return made


def _plain_zeros(graph: torch.fx.Graph, like: Node) -> Node:
    """Makes zeros as autograd passes them to a Function of the program: contiguous, whatever the result's
    layout."""
    val = like.meta["val"]
    strides = strides_of(val.shape)
    if all(map(same, val.stride(), strides)):
        return _zeros(graph, like)
    args = [*map(given_sizes(graph).node, val.shape)], 0
    given = {"dtype": val.dtype, "device": val.device}
    made = _node(graph, like, aten.full.default, args, val.shape, strides, **given)
    return _left(graph, made, like)


def _zeros(graph: torch.fx.Graph, like: Node) -> Node:
    val = like.meta["val"]
    given = {"dtype": val.dtype, "device": val.device}
    sizes = given_sizes(graph)
    # An expanded dimension has one element in memory.
    repeated = [
        not isinstance(s, Size) and s == 0 and (isinstance(n, Size) or n != 1)
        for n, s in zip(val.shape, val.stride(), strict=True)
    ]
    there = [1 if r else n for n, r in zip(val.shape, repeated, strict=True)]

    node = partial(_node, graph, like)
    shape, strides = ([*map(sizes.node, numbers)] for numbers in (there, val.stride()))
    made = node(aten.full.default, (shape, 0), there, strides_of(there), **given)
    if not val.is_contiguous() and not all(repeated):
        empty = node(aten.empty_strided.default, (shape, strides), there, val.stride(), **given)
        made = node(aten.copy.default, (empty, made), there, val.stride())
    if any(repeated):
        whole = [*map(sizes.node, val.shape)]
        made = node(aten.expand.default, (made, whole), val.shape, val.stride())
    return made


def _node(
    graph: torch.fx.Graph, like: Node, func: Any, args: tuple[Any, ...], shape: Any, strides: Any, **kwargs: Any
) -> Node:  # fmt: skip
    """Adds a call of `func` whose result replaces `like`."""
    val = like.meta["val"]
    made = Fake(empty_strided(shape, strides, val.dtype), val.device)
    return call_like(graph, like, func, args, kwargs, val=made)
