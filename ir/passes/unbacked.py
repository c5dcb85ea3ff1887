"""Dependences of steps on unbacked sizes.

A step that uses such a size must run after the library call that decides it.

Lowering registers the sizes with `defined`; `size_dependencies` returns the results that a step waits for as
if it read them.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Iterator
from typing import Any

from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Extern, Kernel, Step, View
from frameloom.ir.substitute import topological
from frameloom.ir.symbolic.atoms import lone_symbol, unbacked_in
from frameloom.ir.symbolic.expr import Int, Size, Symbol

_DEFINED: weakref.WeakKeyDictionary[Symbol, Buffer] = weakref.WeakKeyDictionary()


def defined(results: Iterable[Buffer | None], given: Container[Symbol] = ()) -> None:
    """Registers the sizes of a library call's results that appear for the first time, except sizes that the
    program is `given`."""
    for buffer in results:
        for n in buffer.shape if buffer is not None else ():
            symbol = lone_symbol(n) if isinstance(n, Size) else None
            if (
                symbol is not None
                and buffer is not None
                and symbol.unbacked
                and symbol not in given
            ):
                _DEFINED.setdefault(symbol, buffer)


def forget(symbols: Iterable[Symbol]) -> None:
    """Forgets these symbols, before a program is lowered a second time."""
    for symbol in symbols:
        _DEFINED.pop(symbol, None)


def defines(step: Step) -> list[tuple[Symbol, Buffer, int]]:
    """Returns the symbols whose value is the size of a dimension of a result of this step."""
    definitions: list[tuple[Symbol, Buffer, int]] = []
    for buffer in step.results if isinstance(step, Extern) and _DEFINED else ():
        for dim, n in enumerate(buffer.shape if buffer is not None else ()):
            symbol = lone_symbol(n) if isinstance(n, Size) else None
            if symbol is not None and buffer is not None and _DEFINED.get(symbol) == buffer:
                definitions.append((symbol, buffer, dim))
    return definitions


def size_dependencies(step: Step) -> list[Buffer]:
    if not _DEFINED or not isinstance(step, Kernel | Extern):
        return []
    symbols = dict.fromkeys(_unbacked_in(_sizes_of(step)))
    if isinstance(step, Kernel):
        for store in step.stores:
            symbols.update(
                dict.fromkeys((*_unbacked_inside(store.offset), *_unbacked_inside(store.value)))
            )
    own = step.results if isinstance(step, Extern) else ()
    return [b for s in symbols if (b := _DEFINED.get(s)) is not None and b not in own]


def output_size_sources(outputs: Any) -> list[Buffer]:
    """Returns the results whose sizes appear in the outputs of a program."""
    symbols = dict.fromkeys(_unbacked_in(_sizes_among(outputs)) if _DEFINED else ())
    return [b for s in symbols if (b := _DEFINED.get(s)) is not None]


def checked(symbols: Iterable[Symbol]) -> list[Buffer]:
    """Returns the results whose sizes are checked, even if no step uses them."""
    shape_env = {id(s.shape_env): s.shape_env for s in symbols}
    conditions = [n for f in shape_env.values() for n in f.unbacked_conditions()]
    return [b for n in conditions for s in unbacked_in(n) if (b := _DEFINED.get(s)) is not None]


def _unbacked_in(sizes: Iterable[Int]) -> Iterator[Symbol]:
    return (s for n in sizes if type(n) is not int for s in unbacked_in(n))


_INSIDE: weakref.WeakKeyDictionary[Node, tuple[Symbol, ...]] = weakref.WeakKeyDictionary()


def _unbacked_inside(root: Node) -> tuple[Symbol, ...]:
    """Returns the unbacked symbols in all nodes reachable from `root` (cached per root)."""
    symbols = _INSIDE.get(root)
    if symbols is None:
        sizes = (n for node in topological([root]) for n in _sizes_in(node))
        symbols = _INSIDE[root] = tuple(dict.fromkeys(_unbacked_in(sizes)))
    return symbols


def _sizes_of(step: Kernel | Extern) -> Iterator[Int]:
    """Yields the sizes of a step, except those inside nodes."""
    if isinstance(step, Kernel):
        for store in step.stores:
            yield from store.buffer.shape
            yield from store.buffer.strides
            yield from (a.extent for a in store.axes)
        return
    for buffer in step.results:
        if buffer is not None:
            yield from buffer.shape
            yield from buffer.strides
    yield from _sizes_among([step.args, [v for _, v in step.kwargs]])


def _sizes_in(node: Node) -> Iterator[Int]:
    if node.op is Op.CONST and isinstance(node.arg, Size):
        yield node.arg
    elif node.op is Op.LOAD:
        yield from node.arg.shape
        yield from node.arg.strides
    elif node.op is Op.REDUCE:
        yield from (a.extent for a in node.arg.axes)


def _sizes_among(value: Any) -> Iterator[Int]:
    if isinstance(value, Size):
        yield value
    elif isinstance(value, View):
        yield from (*value.shape, *value.strides, value.offset)
        yield from (*value.buffer.shape, *value.buffer.strides)
    elif isinstance(value, list | tuple):
        for v in value:
            yield from _sizes_among(v)
