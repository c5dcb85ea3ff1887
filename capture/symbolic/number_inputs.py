"""Dynamic numbers in the graph: placeholders after those of the tensors, and nodes for what is computed from
them.

In: `SymbolicNumber` values (values/numbers/symbolic.py), directly or as the torch.SymInt or SymFloat
    arguments of an op. Out: a node for each, whose `meta["val"]` is the number of the captured call. Such
    nodes come before all others, so that nothing has been done yet where a number makes Python raise."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from frameloom.capture.shapes.pointwise import is_pointwise
from frameloom.capture.values.numbers.size import SymbolicSize, as_size, steps
from frameloom.capture.values.numbers.symbolic import SYMBOLS, SymbolicNumber
from frameloom.errors import Avoid, Break
from frameloom.ir.symbolic.atoms import lone_symbol, unbacked_in
from frameloom.ir.symbolic.expr import Int, Size
from frameloom.ir.symbolic.symint import Node, size_of

aten = torch.ops.aten
SEQUENCES = (list, tuple, torch.Size)
# Their C++ code takes the bits of a torch.SymInt as an int, or 32 bits of its number.
TAKE_BITS = frozenset(
    {
        torch.rms_norm,
        torch.nn.functional.rms_norm,
        torch.tensor,
        torch.as_tensor,
        torch.asarray,
        torch.Tensor.new_tensor,
    }
)
INDEXING = frozenset(
    {operator.getitem, operator.setitem, torch.Tensor.__getitem__, torch.Tensor.__setitem__}
)
# The bits of a torch.SymInt: the address of its object after the bits 101.
BITS = range(-0b011 << 61, -0b010 << 61)
# Ops whose results have the same dtype and layout for every number, besides elementwise ops.
FORM_IS_FIXED = frozenset({
    aten.fill.Scalar, aten.fill_.Scalar, aten.full.default, aten.full_like.default, aten.new_full.default, aten.scalar_tensor.default,
    aten.masked_fill.Scalar, aten.masked_fill_.Scalar, aten.addmm.default, aten.baddbmm.default, aten.addmv.default,
})  # fmt: skip


def takes_numbers(func: Any) -> bool:
    """Whether the op accepts a number that is known only at run time."""
    name = func._schema.name
    return is_pointwise(func) or name.startswith("aten::_foreach_") or func in FORM_IS_FIXED


def takes_bits(fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether C++ code would misread symbols in the arguments as other numbers; in an index, it makes tensors
    of lists."""
    if fn in INDEXING:
        return any(has_lists([a]) and has_symbols([a]) for a in args[1:])
    return fn in TAKE_BITS and (has_symbols(args) or has_symbols(kwargs.values()))


def has_lists(args: Sequence[Any]) -> bool:
    return any(type(a) is list or (type(a) is tuple and has_lists(a)) for a in args)


def has_symbols(args: Any, but: type | tuple[()] = ()) -> bool:
    for a in args:
        if isinstance(a, SYMBOLS) and not isinstance(a, but):
            return True
        if isinstance(a, list | tuple) and has_symbols(a, but):
            return True
        if isinstance(a, slice) and has_symbols((a.start, a.stop, a.step)):
            return True
    return False


def with_sizes(value: Any) -> Any:
    """Converts symbols of sizes to sizes, and symbolic comparisons of them to bools."""
    if isinstance(value, SYMBOLS) and (isinstance(value, Size) or isinstance(value.node, Node)):
        if isinstance(value, torch.SymInt):
            return size_of(value)
        return bool(value) if isinstance(value, torch.SymBool) else float(value)
    if type(value) in SEQUENCES:
        return type(value)(map(with_sizes, value))
    if type(value) is int and value in BITS:
        raise Break("unsupported_op", "PyTorch takes a size for another number")
    return value


def _check_known_before(operands: Sequence[Any]) -> None:
    """Refuses unbacked sizes in numbers: numbers are computed before the ops of the graph run, and some of
    these ops decide sizes."""
    sizes = [n.size for n in operands if isinstance(n, SymbolicSize)]
    for symbol in (s for size in sizes for s in unbacked_in(size)):
        if symbol.source.site is not None:
            raise Avoid(symbol.source.site)
        raise Break("data_dependent", f"a number is computed from the size {symbol!r}")


def without_numbers(value: Any) -> Any:
    """Converts dynamic ints to sizes, and specializes every other number: it gets a guard on its value."""
    if isinstance(value, Size):
        return value
    if isinstance(value, SYMBOLS):
        number = value.node.number
        size = as_size(number) if isinstance(number, SymbolicNumber) else None
        return number.real if size is None else size
    if type(value) in SEQUENCES:
        return type(value)(map(without_numbers, value))
    return value


def without_symbols(value: Any) -> Any:
    """Specializes every number and size."""
    if isinstance(value, SYMBOLS):
        return int(value) if isinstance(value, Size) else value.node.number.real
    if isinstance(value, slice):
        return slice(*map(without_symbols, (value.start, value.stop, value.step)))
    if type(value) in SEQUENCES:
        return type(value)(map(without_symbols, value))
    return value


class NumberInputs:
    """The dynamic numbers of one recording."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        # Placeholders go before the first marker, nodes computed from them before the second.
        self._markers = [graph.create_node("call_function", operator.pos, (k,)) for k in range(2)]
        self._nodes: dict[int, tuple[Any, torch.fx.Node]] = {}
        self._numbers: dict[torch.fx.Node, SymbolicNumber] = {}
        self._sizes: dict[Size, torch.fx.Node] = {}
        # Origin, number, placeholder.
        self.inputs: list[tuple[Any, int | float, torch.fx.Node]] = []
        # Computed even if nothing needs them, because Python may raise there.
        self.checked: list[SymbolicNumber] = []

    def node(self, number: Any) -> Any:
        """Returns the node of a number; the number itself if it is known."""
        if isinstance(number, SymbolicSize):
            return self.size(number.size)
        if not isinstance(number, SymbolicNumber):
            return number.real
        if number.is_specialized:
            return number.hint
        entry = self._nodes.get(id(number))
        if entry is None:
            made = self._made(number)
            made.meta.update(val=number.hint, stack="")
            entry = self._nodes[id(number)] = number, made
            self._numbers[made] = number
        return entry[1]

    def size(self, size: Int) -> Any:
        """Returns the node of a size, whose `meta["val"]` is the size."""
        if not isinstance(size, Size):
            return size
        node = self._sizes.get(size)
        if node is None or node._erased:
            symbol = lone_symbol(size)
            if symbol is None:
                fn, operands = steps(size)
                args = tuple(map(self.size, operands))
            else:
                fn, args = symbol.source.read()
            if unbacked_in(size):
                node = self._graph.create_node("call_function", fn, name="size")
            else:
                with self._graph.inserting_before(self._first()):
                    node = self._graph.create_node("call_function", fn, name="size")
            node.args = args
            node.meta.update(val=size, stack="")
            self._sizes[size] = node
        return node

    def _first(self) -> torch.fx.Node:
        """Returns the node before which sizes are inserted. The marker is erased together with the unread
        nodes."""
        marker: torch.fx.Node = self._markers[1]
        if not marker._erased:
            return marker
        return next(n for n in self._graph.nodes if n.op != "placeholder")

    def is_made(self, size: Size, node: torch.fx.Node) -> None:
        """Registers `node` as the node of `size`."""
        self._sizes[size] = node

    def _made(self, number: SymbolicNumber) -> torch.fx.Node:
        if number.origin is not None:
            with self._graph.inserting_before(self._markers[0]):
                made = self._graph.placeholder(f"number_{len(self.inputs)}")
            self.inputs.append((number.origin, number.hint, made))
            return made
        if number.element is not None:
            fn, args = torch.Tensor.item, [number.element]
        else:
            _check_known_before(number.operands)
            fn, args = number.fn, [self.node(a) for a in number.operands]
        with self._graph.inserting_before(self._markers[1]):
            made = self._graph.create_node("call_function", fn, name=fn.__name__)
        made.args = tuple(args)
        return made

    def release(self) -> None:
        """Drops all references at the end of the capture."""
        for number, _ in self._nodes.values():
            number.operands.clear()
            number.take = None
        self._nodes.clear()
        self._sizes.clear()
        self._numbers.clear()
        self.inputs.clear()
        self.checked.clear()

    def number_of(self, node: torch.fx.Node) -> SymbolicNumber | None:
        """Returns the number of a node."""
        return self._numbers.get(node)

    def check(self) -> set[torch.fx.Node]:
        """Returns the nodes that must stay even if they are unused."""
        return {n for number in self.checked if isinstance(n := self.node(number), torch.fx.Node)}
