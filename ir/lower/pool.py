"""Pooling on a GPU, window by window: a loop joins what is around it, and indices that nobody wants are not written.

On the CPU the library's kernels go over a window faster than loops with a condition at every position.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.lower.copies import within
from frameloom.ir.lower.expr import Expr, Number, isnan, where
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, read
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import conjunction

LARGEST = 16  # positions of a window, each of which is written out


def _pair(values: Sequence[int], default: Sequence[int] = ()) -> tuple[int, int]:
    values = values or default
    return (values[0], values[-1])


def _loops(x: Ref, kernel: Sequence[int]) -> bool:
    height, width = _pair(kernel)
    if x.dtype is None or not x.dtype.is_float or 0 in x.shape:
        return False
    return is_cuda(x.buffer.device) and height * width <= LARGEST


def _window(
    x: Ref,
    at: Sequence[Node],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Iterator[tuple[Expr, Expr, Node]]:
    """Whether a position of the window is in the image, the value there, and its number in the image."""
    *batch, row, column = at
    extents, steps = x.shape[-2:], _pair(stride, kernel)

    def along(which: int, position: Node, tap: int) -> Node:
        start = tap * _pair(dilation)[which] - _pair(padding)[which]
        return index.add(index.mul(position, index.index(steps[which])), index.index(start))

    height, width = _pair(kernel)
    for tap in range(height * width):
        h, w = along(0, row, tap // width), along(1, column, tap % width)
        inside = conjunction(within(h, 0, extents[0]), within(w, 0, extents[1]))
        settled = inside.op is Op.CONST
        if settled and not inside.arg:
            continue
        value = read(x, [*batch, h, w], None if settled else inside).wide()
        yield Expr(inside), value, index.add(index.mul(h, index.index(extents[1])), w)


@lowering("aten.max_pool2d_with_indices.default")
def max_pool2d(
    call: Call,
    x: Ref,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[Expr | None]:
    if not _loops(x, kernel):
        raise Decline

    def greatest(result: int) -> tuple[Expr, Expr]:
        """The last NaN, else the first of the greatest; the first position inside, where nothing is greater than -inf."""
        most = place = None
        for inside, value, number in _window(x, call.at(result), kernel, stride, padding, dilation):
            here = Expr(number).cast(DType.I64)
            value = where(inside, value, -math.inf)
            if most is None or place is None:
                most, place, seen = value, here, inside
                continue
            better = (value > most) | isnan(value)
            place = where(better | (inside & ~seen), here, place)
            most, seen = where(better, value, most), seen | inside
        assert most is not None and place is not None
        return most, place

    return [greatest(0)[0], greatest(1)[1]]


@lowering("aten.avg_pool2d.default")
def avg_pool2d(
    call: Call,
    x: Ref,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Number | None,
) -> Expr:
    # Elsewhere windows at the border have divisors of their own.
    plain = not ceil_mode and (count_include_pad or not any(padding))
    if not _loops(x, kernel) or not (plain or divisor):
        raise Decline
    total = None
    for inside, value, _ in _window(x, call.at(), kernel, stride, padding, (1, 1)):
        value = where(inside, value, 0.0)
        total = value if total is None else total + value
    assert total is not None
    height, width = _pair(kernel)
    return total / float(divisor or height * width)
