"""Copies of operands of library calls in longer rows."""

from __future__ import annotations

from collections.abc import Sequence

from frameloom.ir.dtype import DType
from frameloom.ir.index import index, linear
from frameloom.ir.node import axis, load
from frameloom.ir.program import Buffer, Kernel, Kind, Store, View
from frameloom.ir.substitute import space


def of_rows(name: str, dtype: DType | None, shape: Sequence[int], row: int, device: str) -> Buffer:
    """Returns a dense TEMP buffer, except that each row takes the memory of `row` elements."""
    strides = [1]
    step = row
    for extent in reversed(shape[:-1]):
        strides.insert(0, step)
        step *= extent
    return Buffer(name, dtype, tuple(shape), tuple(strides), Kind.TEMP, device=device)


def copy_kernel(
    source: View, into: Buffer, strides: Sequence[int], name: str, origin: tuple[str, ...]
) -> Kernel:
    """Returns the kernel that copies a view to the elements with these strides."""
    axes = space([e for e in source.shape if e != 1])
    left = iter(axes)
    at = [axis(next(left)) if e != 1 else index(0) for e in source.shape]
    value = load(source.buffer, linear(at, source.strides, source.offset))
    return Kernel(name, (Store(into, linear(at, strides), value, axes),), origin)
