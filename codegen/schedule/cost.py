"""Estimates what an element costs: rough vector cycles per op, and bytes moved. This decides unrolling, which
values a row buffer keeps, and when threads pay. Only ratios matter."""

from __future__ import annotations

import math
from collections.abc import Iterable

from frameloom.ir.node import Node
from frameloom.ir.ops import TRANSCENDENTAL, Op
from frameloom.ir.program import Kernel
from frameloom.ir.substitute import loads
from frameloom.ir.symbolic.expr import Int, hint_of, hint_product

_WEIGHTS = {
    Op.CONST: 0.0, Op.AXIS: 0.0, Op.LOAD: 1.0, Op.REDUCE: 0.0, Op.DIV: 6.0, Op.RECIP: 6.0, Op.SQRT: 8.0,
    Op.RSQRT: 14.0, Op.FLOORDIV: 12.0, Op.TRUNCDIV: 12.0, Op.MOD: 12.0, Op.FMOD: 40.0, Op.MIN: 2.0, Op.MAX: 2.0,
    Op.POW: 60.0, Op.NEXTAFTER: 10.0, Op.LGAMMA: 200.0, Op.EXP: 12.0, Op.EXP2: 12.0, Op.SIGMOID: 20.0, Op.RANDOM: 40.0,
}  # fmt: skip


def weight(node: Node) -> float:
    """Returns the cost of the node itself, without its sources."""
    cycles = _WEIGHTS.get(node.op)
    if cycles is not None:
        return cycles
    return 25.0 if node.op in TRANSCENDENTAL else 1.0


def cost(nodes: Iterable[Node]) -> float:
    return sum(map(weight, nodes))


def size(axes: Iterable) -> Int:
    return math.prod(a.extent for a in axes)


def count(axes: Iterable) -> int:
    """Returns the size in the captured call, for choices that only affect speed."""
    return hint_product(a.extent for a in axes)


def bytes_moved(kernel: Kernel) -> int:
    """Returns the minimum bytes that the kernel reads and writes: each element of each buffer that it
    touches, once."""
    total = sum(count(s.axes) * s.buffer.dtype.bytes for s in kernel.stores)
    for b in {n.arg for n in loads(n for s in kernel.stores for n in (s.offset, s.value))}:
        shape = zip(b.shape, b.strides, strict=True)
        total += b.dtype.bytes * hint_product(e for e, s in shape if hint_of(s))
    return total
