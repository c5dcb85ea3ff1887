"""Kernels that differ only in their buffers: code for one serves the others."""

from __future__ import annotations

from collections.abc import Hashable

from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, Kind
from frameloom.ir.substitute import topological


def structure(kernel: Kernel) -> tuple[Hashable, tuple[Buffer, ...]]:
    """Returns a key that is equal for kernels with the same code, and the kernel's buffers in a corresponding
    order."""
    numbers: dict[Node, int] = {}
    buffers: dict[Buffer, int] = {}
    parts: list[Hashable] = []
    for n in topological([r for s in kernel.stores for r in (s.offset, s.value)]):
        numbers[n] = len(numbers)
        arg = n.arg
        if n.op is Op.LOAD:
            arg = buffers.setdefault(arg, len(buffers)), arg.kind is Kind.NUMBER
        elif n.op is Op.CONST:
            arg = repr(arg)
        parts.append((n.op, n.dtype, arg, tuple(numbers[s] for s in n.srcs)))
    for s in kernel.stores:
        number = buffers.setdefault(s.buffer, len(buffers))
        parts.append(
            (number, s.buffer.dtype, numbers[s.offset], numbers[s.value], s.axes, s.scatter)
        )
    return tuple(parts), tuple(buffers)
