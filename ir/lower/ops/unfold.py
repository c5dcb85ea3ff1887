"""Windows of an image as columns of a matrix (im2col), and sums of such columns per pixel (col2im)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.ops.copies import within
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, read
from frameloom.ir.node import Node, const
from frameloom.ir.ops import Op
from frameloom.ir.substitute import FALSE, compare, conjunction

MAX_WINDOWS = 64  # windows that contain one pixel, at most: they are unrolled


@dataclass(frozen=True)
class Side:
    """One dimension of the image: a window has `count` positions, `step` apart; windows are `stride`
    apart."""

    extent: int
    count: int
    step: int
    padding: int
    stride: int
    windows: int  # how many

    def pixel(self, window: Node, tap: Node) -> Node:
        start = index.add(index.mul(window, self.stride), index.index(-self.padding))
        return index.add(start, index.mul(tap, self.step))

    def holders(self, pixel: Node) -> list[tuple[Node, Node, Node]]:
        """Returns (window, position in it, whether both exist) for all windows that can contain the pixel, by
        positions."""
        padded = index.add(pixel, index.index(self.padding))
        candidates = []
        if self.step == 1:
            last, first = index.floordiv(padded, self.stride), index.mod(padded, self.stride)
            for k in range(-(-self.count // self.stride)):
                window = index.sub(last, index.index(k))
                tap = index.add(first, index.index(k * self.stride))
                inside = conjunction(within(window, 0, self.windows), within(tap, 0, self.count))
                candidates.append((window, tap, inside))
        else:
            for k in range(self.count):
                behind = index.sub(padded, index.index(k * self.step))
                window = index.floordiv(behind, self.stride)
                whole = compare(Op.EQ, index.mod(behind, self.stride), index.index(0))
                inside = conjunction(within(window, 0, self.windows), whole)
                candidates.append((window, index.index(k), inside))
        return [f for f in candidates if f[2] is not FALSE]


def _sides(image: Sequence[int], *given: Sequence[int]) -> list[Side]:
    """Returns the dimensions with the number of windows that fit."""
    sides = []
    for extent, count, step, padding, stride in zip(image, *given, strict=True):
        windows = (extent + 2 * padding - step * (count - 1) - 1) // stride + 1
        sides.append(Side(extent, count, step, padding, stride, windows))
    return sides


@lowering("aten.im2col.default")
def im2col(
    call: Call,
    x: Ref,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Expr:
    down, right = _sides(x.shape[-2:], kernel, dilation, padding, stride)
    *batch, row, column = call.at()
    channel, tap = index.floordiv(row, down.count * right.count), index.mod(row, down.count * right.count)  # fmt: skip
    at = [
        down.pixel(index.floordiv(column, right.windows), index.floordiv(tap, right.count)),
        right.pixel(index.mod(column, right.windows), index.mod(tap, right.count)),
    ]
    inside = conjunction(*(within(p, 0, s.extent) for p, s in zip(at, (down, right), strict=True)))
    return read(x, [*batch, channel, *at], inside)


@lowering("aten.col2im.default")
def col2im(
    call: Call,
    x: Ref,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Expr:
    if x.dtype is None or not x.dtype.is_float:
        raise Decline
    down, right = _sides(size, kernel, dilation, padding, stride)
    *batch, channel, y, z = call.at()
    pairs = list(itertools.product(down.holders(y), right.holders(z)))
    if len(pairs) > MAX_WINDOWS:
        raise Decline
    total = Expr(const(0, DType.F32 if x.dtype.is_half else x.dtype))
    for k, ((above, i, in_rows), (left, j, in_columns)) in enumerate(pairs):
        inside = conjunction(in_rows, in_columns)
        row = index.linear([channel, i, j], [down.count * right.count, right.count, 1])
        column = index.linear([above, left], [right.windows, 1])
        value = read(x, [*batch, row, column], inside).wide()
        total = value if k == 0 else total + value
    return total
