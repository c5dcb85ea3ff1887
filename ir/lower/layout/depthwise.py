"""Derivatives of depthwise convolutions (each channel by itself), on channels-last tensors of a GPU.

The library compiles its kernels for them at the first call, which takes half a second or more each, and they
are slow if windows are more than one pixel apart.  Its kernels for the convolutions themselves have neither
problem.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from frameloom.ir import index
from frameloom.ir.lower.expr import Expr, total
from frameloom.ir.lower.layout.channels_last import is_channels_last
from frameloom.ir.lower.ops.copies import within
from frameloom.ir.lower.ops.reduce import element, reduction_slice
from frameloom.ir.lower.ops.unfold import Side
from frameloom.ir.lower.table import Ref, positions, product, read
from frameloom.ir.substitute import conjunction
from frameloom.ir.symbolic.expr import Size

MAX_UNROLLED = 4  # windows that contain a pixel: more do not fit into registers
MAX_TAPS = 25  # positions of a window: each one reads all of the image


@dataclass(frozen=True)
class Depthwise:
    """`sides`: the windows of rows and columns; `each`: the number of results per channel."""

    grad: Ref
    x: Ref
    weight: Ref
    sides: tuple[Side, Side]
    each: int

    def of_input(self) -> Expr | None:
        """Returns the input's gradient, from every window that contains a pixel; None if the library's kernel
        is better."""
        sample, channel, *pixel = positions(self.x.shape)
        down, right = (s.holders(p) for s, p in zip(self.sides, pixel, strict=True))
        many = self.each * len(down) * len(right)
        if not 0 < many <= MAX_UNROLLED or all(s.stride == 1 for s in self.sides):
            return None
        values = []
        for k, row_window, column_window in itertools.product(range(self.each), down, right):
            windows, taps, there = zip(row_window, column_window, strict=True)
            inside = conjunction(*there)
            out = index.add(index.mul(channel, self.each), index.index(k))
            factor = read(self.weight, [out, index.index(0), *taps], inside).wide()
            values.append(factor * read(self.grad, [sample, out, *windows], inside).wide())
        return total(values)

    def of_weight(self) -> Expr | None:
        """Returns the weight's gradient, a sum over all windows, in each of which a tap meets another pixel;
        None if the window is large."""
        if product(self.weight.shape[2:]) > MAX_TAPS:
            return None
        out, _, *taps = positions(self.weight.shape)
        over = reduction_slice(self.grad.shape, [0, 2, 3], [out], keepdim=False)
        sample, _, *windows = over.at
        at = [s.pixel(w, t) for s, w, t in zip(self.sides, windows, taps, strict=True)]
        inside = conjunction(*(within(p, 0, s.extent) for p, s in zip(at, self.sides, strict=True)))
        value = read(self.x, [sample, index.floordiv(out, self.each), *at], inside).wide()
        return over.fold("sum", element(self.grad, over.at) * value)


def depthwise(grad: Ref, x: Ref, weight: Ref, options: Sequence[object]) -> Depthwise | None:
    """Returns the convolution if it is depthwise and suitable, else None.  `options`: stride, padding,
    dilation, whether it is transposed, the padding of results, the number of groups."""
    stride, padding, dilation, transposed, _, groups = options
    if (
        transposed
        or groups == 1
        or groups != x.shape[1]
        or not is_channels_last(x.shape, x.strides)
    ):
        return None
    if x.dtype is None or not weight.dtype is grad.dtype is x.dtype:
        return None
    if any(isinstance(n, Size) for n in x.shape):
        return None
    parameters = (weight.shape[2:], dilation, padding, stride, grad.shape[2:])
    down, right = (Side(*side) for side in zip(x.shape[2:], *parameters, strict=True))  # type: ignore[call-overload]
    return Depthwise(grad, x, weight, (down, right), weight.shape[0] // x.shape[1])
