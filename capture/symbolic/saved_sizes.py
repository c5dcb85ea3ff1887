"""Sizes that vary, in a backward graph: ints that a call's forward pass hands on, beside what it saves.

The tensors that a backward pass gets do not show every size that it needs, and which of them it gets differs.  So each symbol that the graph depends on
is an input of it: the forward pass reads them from its own inputs, or returns those that data decides (`Carried`), and what else is computed from
them is computed by nodes of the graph (`SizeNodes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from frameloom.capture.tensors.sized import Sized, resolved
from frameloom.capture.values.numbers.size import steps
from frameloom.ir.symbolic.atoms import atoms_of, evaluated, lone_symbol
from frameloom.ir.symbolic.expr import Int, Size, Symbol

Node = torch.fx.Node


@dataclass(frozen=True, eq=False)
class Carried:
    """The size ("dim") or stride of a dimension of an input of the forward graph, or that input itself ("int"); or what the graph returns at
    that place ("unbacked")."""

    symbol: Symbol
    kind: str
    input: int
    dim: int

    def read(self, inputs: Sequence[Any], results: Sequence[Any]) -> int:
        if self.kind == "unbacked":
            return results[self.input]  # type: ignore[no-any-return]
        tensor = inputs[self.input]
        if self.kind == "int":
            return tensor  # type: ignore[no-any-return]
        found: int = tensor.size(self.dim) if self.kind == "dim" else tensor.stride(self.dim)
        return found


def symbols_in(value: Any) -> Iterator[Symbol]:
    """Those that a structure of tensors and numbers depends on."""
    if isinstance(value, Size):
        yield from atoms_of(resolved(value))  # type: ignore[misc]
    elif isinstance(value, Sized):
        yield from symbols_in((*value.shape, *value.stride(), value.storage_offset()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from symbols_in(part)


def needed_for_sizes(
    nodes: Iterable[Node], unread: Mapping[Any, Node], checked: Sequence[Size]
) -> Iterator[Node]:
    """Placeholders among `unread` (by origin) that no op reads, but whose sizes those of other tensors turned out to equal, or are `checked`
    behind an op."""
    sized = {
        origin: p
        for origin, p in unread.items()
        if isinstance(p.meta.get("val"), Sized | Size | int)
    }
    if not sized:
        return
    skipped = set(sized.values())
    new = [n for n in nodes if n not in skipped]
    values = [n.meta.get("val") for n in new]
    # Conditions are checked as they are: resolved, those that two sizes are equal say nothing.
    symbols: set[Any] = {s for n in checked for s in atoms_of(n)}
    while values:  # those that are kept have sizes themselves
        symbols.update(symbols_in(values))
        origins = {s.source.origin for s in symbols} & sized.keys()
        new = [sized.pop(origin) for origin in origins]
        values = [n.meta.get("val") for n in new]
        yield from new


def at_sizes(value: Any, sizes: Mapping[Symbol, int]) -> Any:
    """A structure with every size in it known."""
    if isinstance(value, Size):
        return evaluated(resolved(value), sizes.__getitem__)
    if isinstance(value, list | tuple):
        return type(value)(at_sizes(part, sizes) for part in value)
    if isinstance(value, dict):
        return {name: at_sizes(part, sizes) for name, part in value.items()}
    return value


class SizeNodes:
    """Nodes of sizes in a graph, made when they are asked for; `symbols` has the placeholders."""

    def __init__(self, graph: torch.fx.Graph, symbols: Mapping[Symbol, Node]) -> None:
        self._graph = graph
        self._symbols = symbols
        self._made: dict[Size, Node] = {}

    def node(self, size: Int) -> Any:
        """What stands for the size in a node's arguments."""
        size = resolved(size)
        if not isinstance(size, Size):
            return size
        if (symbol := lone_symbol(size)) is not None:
            return self._symbols[symbol]
        found = self._made.get(size)
        if found is None:
            fn, operands = steps(size)
            found = self._made[size] = self._graph.call_function(
                fn, tuple(map(self.node, operands))
            )
            found.meta.update(val=size, stack="")
        return found


def given_sizes(graph: torch.fx.Graph) -> SizeNodes:
    """Of a graph that has its placeholders already."""
    sizes = ((n, n.meta.get("val")) for n in graph.find_nodes(op="placeholder"))
    return SizeNodes(graph, {lone_symbol(v): n for n, v in sizes if isinstance(v, Size)})  # type: ignore[misc]


def is_size(node: Node) -> bool:
    """Whether a node of a graph stands for one."""
    return isinstance(node.meta.get("val"), Size)
