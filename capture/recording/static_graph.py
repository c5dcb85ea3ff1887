"""A captured graph with symbolic sizes, specialized for calls that all have the same sizes.

Sizes in its nodes' arguments and in the shapes of its tensors become ints; number arguments of a call stay as
they are."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from frameloom.capture.recording.branches import calls_in
from frameloom.capture.recording.captured_graph import CapturedGraph
from frameloom.capture.symbolic.saved_sizes import symbols_in
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.sized import Sized, empty_strided, resolved
from frameloom.ir.symbolic.atoms import lone_symbol, substitute
from frameloom.ir.symbolic.expr import Int, Size, Symbol
from frameloom.ir.symbolic.shape_env import ShapeEnv

Node = torch.fx.Node


def sizes_of(captured: CapturedGraph) -> tuple[Symbol, ...]:
    """Returns the symbols of sizes of its tensor inputs; none where it cannot be specialized."""
    if captured.shape_env is None or captured.shape_env.has_unbacked or calls_in(captured.graph):
        return ()
    symbols: dict[Symbol, None] = {}
    for node in captured.graph.find_nodes(op="placeholder"):
        symbols |= dict.fromkeys(symbols_in(node.meta.get("val")))
    given = set(captured.inputs)
    return tuple(
        s for s in symbols if s.source.kind in ("dim", "stride") and s.source.origin in given
    )


def captured_at_sizes(captured: CapturedGraph, known: Mapping[Symbol, int]) -> CapturedGraph:
    """Returns `captured`, specialized for calls in which the symbols have these values."""
    return replace(
        captured, graph=_Copy(captured.graph, captured.shape_env, known).graph, shape_env=None
    )


def graph_at_sizes(graph: torch.fx.Graph, known: Mapping[Symbol, int]) -> torch.fx.Graph:
    """Returns the graph specialized for these sizes; raises KeyError if a size is not known then."""
    sizes = [*symbols_in([node.meta.get("val") for node in graph.nodes])]
    made = _Copy(graph, sizes[0].shape_env if sizes else None, known).graph
    for symbol in symbols_in([node.meta.get("val") for node in made.nodes]):
        raise KeyError(symbol)
    return made


def sizes_in(graph: torch.fx.Graph, given: Sequence[Any]) -> dict[Symbol, int]:
    """Returns the values of the placeholders' symbols for the values `given`."""
    pairs: list[tuple[Int, int]] = []
    behind: list[tuple[Int, int]] = []  # strides come last, because gradients may have others
    for node, value in zip(graph.find_nodes(op="placeholder"), given, strict=True):
        like = node.meta.get("val")
        if isinstance(like, Size):
            pairs.append((like, value))
        elif isinstance(like, Sized):
            pairs += zip(like.shape, value.shape, strict=True)
            behind += zip(like.stride(), value.stride(), strict=True)
    values: dict[Symbol, int] = {}
    for size, n in pairs + behind:
        symbol = lone_symbol(resolved(size))
        if symbol is not None:
            values.setdefault(symbol, n)
    return values


class _Copy:
    def __init__(
        self, graph: torch.fx.Graph, shape_env: ShapeEnv | None, known: Mapping[Symbol, int]
    ) -> None:
        self._shape_env = shape_env
        self._known = dict(known)
        self._nodes: dict[Node, Any] = {}
        self.graph = torch.fx.Graph()
        for node in graph.nodes:
            args, kwargs = self._value(node.args), self._value(node.kwargs)
            number = self._number(node, args)
            if number is not None:
                self._nodes[node] = number
                continue
            copy = self.graph.create_node(node.op, node.target, args, kwargs, node.name)
            copy.meta.update(node.meta)
            if "val" in node.meta:
                copy.meta["val"] = self._value(node.meta["val"])
            self._nodes[node] = copy

    def _number(self, node: Node, args: tuple[Any, ...]) -> int | float | None:
        """Returns the value of a node of numbers, if it is known."""
        value = node.meta.get("val")
        if node.op != "call_function" or isinstance(value, torch.Tensor):
            return None
        if isinstance(value, Size):
            symbol = lone_symbol(value)
            if symbol is not None and node.target is operator.index and type(args[0]) is int:
                self._known[symbol] = args[0]  # computed from others
            known = self._int(value)
            return None if isinstance(known, Size) else int(known)
        if type(value) not in (int, float) or any(type(a) not in (int, float) for a in args):
            return None
        number: int | float = node.target(*args)  # type: ignore[operator]
        return number

    def _value(self, value: Any) -> Any:
        """Converts a structure of nodes, tensors and numbers."""
        return torch.fx.node.map_aggregate(value, self._leaf)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self._nodes[value]
        if isinstance(value, Size):
            return self._int(value)
        return self._fake(value) if isinstance(value, Sized) and isinstance(value, Fake) else value

    def _int(self, n: Int) -> Int:
        return substitute(self._shape_env, resolved(n), self._symbol)

    def _symbol(self, symbol: Symbol) -> Int:
        known = self._known.get(symbol)
        return self._shape_env.make({(symbol,): 1}) if known is None else known

    def _fake(self, like: Fake) -> Fake:
        shape, strides = (tuple(map(self._int, some)) for some in (like.shape, like.stride()))
        offset = self._int(like.storage_offset())
        made = Fake(
            empty_strided(shape, strides, like.dtype, offset), like.device, like.requires_grad
        )
        made.by_function = like.by_function
        return made
