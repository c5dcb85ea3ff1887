"""Symbolic sizes in a backward graph: ints that the forward pass passes on, besides the saved tensors.

The tensors of a backward pass do not show every size that it needs, and which tensors it gets differs. So
each symbol on which the graph depends is an input of it. The forward pass reads the symbols from its own
inputs, or returns the unbacked ones (`SavedSize`). Nodes of the graph compute other sizes from them
(`SizeNodes`)."""

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
class SavedSize:
    """A symbol's value in the forward pass: the size ("dim") or stride of a dimension of an input of the
    forward graph, or that input itself ("int"); or a result of the forward graph ("unbacked")."""

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
        value: int = tensor.size(self.dim) if self.kind == "dim" else tensor.stride(self.dim)
        return value


def symbols_in(value: Any) -> Iterator[Symbol]:
    """Yields the symbols on which a structure of tensors and numbers depends."""
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
    """Yields placeholders among `unread` (by origin) that no op reads, but whose sizes are needed: sizes of
    other tensors turned out to equal them, or they are in the conditions `checked` after an op."""
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
    # Conditions are used unresolved: a resolved equality of two sizes would be trivial.
    symbols: set[Any] = {s for n in checked for s in atoms_of(n)}
    while values:  # those that are kept have sizes themselves
        symbols.update(symbols_in(values))
        origins = {s.source.origin for s in symbols} & sized.keys()
        new = [sized.pop(origin) for origin in origins]
        values = [n.meta.get("val") for n in new]
        yield from new


def at_sizes(value: Any, sizes: Mapping[Symbol, int]) -> Any:
    """Returns the structure with numbers in place of all sizes."""
    if isinstance(value, Size):
        return evaluated(resolved(value), sizes.__getitem__)
    if isinstance(value, list | tuple):
        return type(value)(at_sizes(part, sizes) for part in value)
    if isinstance(value, dict):
        return {name: at_sizes(part, sizes) for name, part in value.items()}
    return value


class SizeNodes:
    """Makes nodes of sizes in a graph on demand; `symbols` has the placeholders."""

    def __init__(self, graph: torch.fx.Graph, symbols: Mapping[Symbol, Node]) -> None:
        self._graph = graph
        self._symbols = symbols
        self._made: dict[Size, Node] = {}

    def node(self, size: Int) -> Any:
        """Returns the node or number of the size, as an argument of a node."""
        size = resolved(size)
        if not isinstance(size, Size):
            return size
        if (symbol := lone_symbol(size)) is not None:
            return self._symbols[symbol]
        node = self._made.get(size)
        if node is None:
            fn, operands = steps(size)
            node = self._made[size] = self._graph.call_function(fn, tuple(map(self.node, operands)))
            node.meta.update(val=size, stack="")
        return node


def given_sizes(graph: torch.fx.Graph) -> SizeNodes:
    """Returns the size nodes of a graph that already has its placeholders."""
    sizes = ((n, n.meta.get("val")) for n in graph.find_nodes(op="placeholder"))
    return SizeNodes(graph, {lone_symbol(v): n for n, v in sizes if isinstance(v, Size)})  # type: ignore[misc]


def is_size(node: Node) -> bool:
    """Whether the node is a size."""
    return isinstance(node.meta.get("val"), Size)
