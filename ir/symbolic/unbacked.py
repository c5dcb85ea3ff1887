"""Which library call decides an unbacked size.

A step that uses such a size must run after that call.

Lowering registers the sizes with `defined`; a step reads their `sources`, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING

from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.substitute import topological
from frameloom.ir.symbolic.atoms import lone_symbol, unbacked_in
from frameloom.ir.symbolic.expr import Int, Size, Symbol

if TYPE_CHECKING:
    from frameloom.ir.program import Buffer

_DEFINED: weakref.WeakKeyDictionary[Symbol, Buffer] = weakref.WeakKeyDictionary()


def defined(results: Iterable[Buffer | None], given: Container[Symbol] = ()) -> None:
    """Registers the sizes of a library call's results that appear for the first time, except sizes that the
    program is `given`."""
    for symbol, buffer, _ in _lone_sizes(results):
        if symbol.unbacked and symbol not in given:
            _DEFINED.setdefault(symbol, buffer)


def forget(symbols: Iterable[Symbol]) -> None:
    """Forgets these symbols, before a program is lowered a second time."""
    for symbol in symbols:
        _DEFINED.pop(symbol, None)


def definitions(results: Iterable[Buffer | None]) -> list[tuple[Symbol, Buffer, int]]:
    """Returns the symbols that dimensions of these results of a call decide."""
    return [d for d in _lone_sizes(results) if _DEFINED.get(d[0]) == d[1]] if _DEFINED else []


def _lone_sizes(results: Iterable[Buffer | None]) -> Iterator[tuple[Symbol, Buffer, int]]:
    """Yields the dimensions whose size is one symbol."""
    for buffer in results:
        for dim, n in enumerate(buffer.shape if buffer is not None else ()):
            symbol = lone_symbol(n)
            if symbol is not None and buffer is not None:
                yield symbol, buffer, dim


def sources(sizes: Iterable[Int], nodes: Iterable[Node] = ()) -> list[Buffer]:
    """Returns the results that decide unbacked sizes, among these or inside nodes."""
    if not _DEFINED:
        return []
    symbols = dict.fromkeys(_unbacked(sizes))
    for node in nodes:
        symbols.update(dict.fromkeys(_unbacked_inside(node)))
    return [b for s in symbols if (b := _DEFINED.get(s)) is not None]


def checked(symbols: Iterable[Symbol]) -> list[Buffer]:
    """Returns the results whose sizes are checked, even if no step uses them."""
    shape_envs = {id(s.shape_env): s.shape_env for s in symbols}
    return sources(n for env in shape_envs.values() for n in env.unbacked_conditions())


def _unbacked(sizes: Iterable[Int]) -> Iterator[Symbol]:
    return (s for n in sizes if type(n) is not int for s in unbacked_in(n))


_INSIDE: weakref.WeakKeyDictionary[Node, tuple[Symbol, ...]] = weakref.WeakKeyDictionary()


def _unbacked_inside(root: Node) -> tuple[Symbol, ...]:
    """Returns the unbacked symbols in all nodes reachable from `root` (cached per root)."""
    symbols = _INSIDE.get(root)
    if symbols is None:
        sizes = (n for node in topological([root]) for n in _sizes_in(node))
        symbols = _INSIDE[root] = tuple(dict.fromkeys(_unbacked(sizes)))
    return symbols


def _sizes_in(node: Node) -> Iterator[Int]:
    if node.op is Op.CONST and isinstance(node.arg, Size):
        yield node.arg
    elif node.op is Op.LOAD:
        yield from node.arg.shape
        yield from node.arg.strides
    elif node.op is Op.REDUCE:
        yield from (a.extent for a in node.arg.axes)
