"""Derivatives of convolutions of each channel by itself, on channels-last tensors of a GPU.

The library's kernels for them are compiled when they are first called, for half a second and more each, and are slow at
windows that are apart.  Those for the convolutions themselves are neither.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from frameloom.ir import index
from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.layout.channels_last import is_last
from frameloom.ir.lower.ops.copies import within
from frameloom.ir.lower.ops.reduce import element, line
from frameloom.ir.lower.ops.unfold import Side
from frameloom.ir.lower.table import Ref, positions, product, read
from frameloom.ir.node import Node
from frameloom.ir.substitute import TRUE, conjunction
from frameloom.ir.symbolic.expr import Size

WRITTEN_OUT = 4  # windows that a pixel is in: more do not fit into registers
LARGEST = 25  # positions of a window: all of the image is read as often


@dataclass(frozen=True)
class Depthwise:
    """`sides`: the windows of rows and columns; `each`: results of a channel."""

    grad: Ref
    x: Ref
    weight: Ref
    sides: tuple[Side, Side]
    each: int

    def of_input(self) -> Expr | None:
        """From every window that a pixel is in; None where the library's is better."""
        sample, channel, *pixel = positions(self.x.shape)
        down, right = (s.holders(p) for s, p in zip(self.sides, pixel, strict=True))
        many = self.each * len(down) * len(right)
        if not 0 < many <= WRITTEN_OUT or all(s.stride == 1 for s in self.sides):
            return None
        total = None
        for k, above, beside in itertools.product(range(self.each), down, right):
            windows, taps, there = zip(above, beside, strict=True)
            inside = conjunction(*there)
            out = index.add(index.mul(channel, self.each), index.index(k))
            factor = _masked(self.weight, [out, index.index(0), *taps], inside)
            value = factor * _masked(self.grad, [sample, out, *windows], inside)
            total = value if total is None else total + value
        return total

    def of_weight(self) -> Expr | None:
        """Over all windows, which every tap meets at another pixel."""
        if product(self.weight.shape[2:]) > LARGEST:
            return None
        out, _, *taps = positions(self.weight.shape)
        over = line(self.grad.shape, [0, 2, 3], [out], keepdim=False)
        sample, _, *windows = over.at
        at = [s.pixel(w, t) for s, w, t in zip(self.sides, windows, taps, strict=True)]
        inside = conjunction(*(within(p, 0, s.extent) for p, s in zip(at, self.sides, strict=True)))
        value = _masked(self.x, [sample, index.floordiv(out, self.each), *at], inside)
        return over.fold("sum", element(self.grad, over.at) * value)


def depthwise(grad: Ref, x: Ref, weight: Ref, options: Sequence[object]) -> Depthwise | None:
    """`options`: stride, padding, dilation, whether it is transposed, the padding of results, the number of groups."""
    stride, padding, dilation, transposed, _, groups = options
    if transposed or groups == 1 or groups != x.shape[1] or not is_last(x.shape, x.strides):
        return None
    if x.dtype is None or not weight.dtype is grad.dtype is x.dtype:
        return None
    if any(isinstance(n, Size) for n in x.shape):
        return None
    facts = (weight.shape[2:], dilation, padding, stride, grad.shape[2:])
    down, right = (Side(*side) for side in zip(x.shape[2:], *facts, strict=True))  # type: ignore[call-overload]
    return Depthwise(grad, x, weight, (down, right), weight.shape[0] // x.shape[1])


def _masked(ref: Ref, at: Sequence[Node], inside: Node) -> Expr:
    return read(ref, at, None if inside is TRUE else inside).wide()
