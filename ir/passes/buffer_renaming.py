"""Kernels that differ only in the names of their buffers: code for one serves the others by renaming."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, Store
from frameloom.ir.substitute import loads, transform


def nameless(kernel: Kernel) -> tuple[Hashable, dict[Buffer, Buffer]]:
    """Returns a key that is equal for kernels that differ only in buffer names, and for each buffer a
    replacement that is numbered in the order of first use."""
    names: dict[Buffer, Buffer] = {}
    for s in kernel.stores:
        for b in (s.buffer, *(n.arg for n in loads((s.offset, s.value)))):
            if b not in names:
                names[b] = replace(b, name=f"b{len(names)}")
    stores = renamed(kernel.stores, names)
    key = tuple((s.buffer, s.offset, s.value, s.axes, s.scatter) for s in stores)
    return (key, tuple(b.identity for b in names.values())), names


def renamed(stores: Sequence[Store], names: Mapping[Buffer, Buffer]) -> tuple[Store, ...]:
    """Returns the stores with other buffers."""

    def visit(n: Node) -> Node | None:
        if n.op is not Op.LOAD or n.arg not in names:
            return None
        return Node(Op.LOAD, n.dtype, n.srcs, names[n.arg])

    roots = transform([n for s in stores for n in (s.offset, s.value)], visit)
    return tuple(
        replace(s, buffer=names.get(s.buffer, s.buffer), offset=offset, value=value)
        for s, offset, value in zip(stores, roots[::2], roots[1::2], strict=True)
    )
