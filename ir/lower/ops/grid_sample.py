"""Sampling images at the positions of a grid, and the grids of affine maps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr, floor, minimum, rint, total, where
from frameloom.ir.lower.layout.channels_last import is_channels_last
from frameloom.ir.lower.ops.copies import clamped
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, read
from frameloom.ir.node import Node
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import TRUE, conjunction

BILINEAR, NEAREST = 0, 1
ZEROS, BORDER, REFLECTION = 0, 1, 2
MIN_CHANNELS = 8  # channels

Tap = tuple[Node, Node, Expr]  # pixel of one dimension, whether it is in the image, weight


@lowering("aten.grid_sampler_2d.default")
def grid_sampler(call: Call, x: Ref, grid: Ref, mode: int, padding: int, aligned: bool) -> Expr:
    if is_cuda(call.device) or x.dtype not in (DType.F32, DType.F64) or 0 in x.shape:
        raise Decline
    if (
        mode not in (BILINEAR, NEAREST)
        or x.dtype is not grid.dtype
        or is_channels_last(x.shape, x.strides)
    ):
        raise Decline
    few = x.shape[1] < MIN_CHANNELS and (mode, padding) != (BILINEAR, ZEROS)
    if padding == REFLECTION or few:
        raise Decline  # most time goes into finding the pixels, and the library does it with twice the lanes
    batch, channel, *place = call.at()
    taps = []
    for d, extent in enumerate(x.shape[2:]):
        at = read(grid, [batch, *place, index.index(x.ndim - 3 - d)])
        at = _in_pixels(at, extent, padding, aligned)
        find = _nearest if mode == NEAREST else _linear
        taps.append(find(at, extent, padding != ZEROS))
    values = []
    for (row, in_rows, above), (column, in_columns, before) in itertools.product(*taps):
        inside = conjunction(in_rows, in_columns)
        value = read(x, [batch, channel, row, column], inside)
        if mode == NEAREST:
            return value
        values.append(value * (above * before))
    return total(values)


def _in_pixels(at: Expr, extent: int, padding: int, aligned: bool) -> Expr:
    """Converts a position of the grid, from -1 to 1, to pixels; moves it inside the image unless outside
    counts as zeros."""
    at = (at + 1) * ((extent - 1) / 2) if aligned else (at + 1) * (extent / 2) - 0.5
    if padding == ZEROS:
        return at
    at = where(at > 0, at, 0)  # a NaN becomes 0
    return minimum(at, extent - 1)


def _pixel(at: Expr, extent: int, inside: bool) -> Node:
    pixel = at.cast(DType.I32).cast(DType.I64).node
    return clamped(pixel, extent - 1) if inside else pixel


def _nearest(at: Expr, extent: int, inside: bool) -> list[Tap]:
    at = rint(at)
    there = TRUE if inside else ((at >= 0) & (at <= extent - 1)).node
    return [(_pixel(at, extent, inside), there, at)]


def _linear(at: Expr, extent: int, inside: bool) -> list[Tap]:
    first = floor(at)
    behind, pixel = at - first, _pixel(first, extent, inside)
    there = TRUE if inside else ((first >= 0) & (first <= extent - 1)).node
    before_last = first <= extent - 2
    also = before_last if inside else (first >= -1) & before_last
    return [(pixel, there, 1 - behind), (index.add(pixel, index.index(1)), also.node, behind)]


@lowering("aten.affine_grid_generator.default")
def affine_grid(call: Call, theta: Ref, size: Sequence[int], aligned: bool) -> Expr:
    if theta.dtype is None or not theta.dtype.is_float:
        raise Decline
    batch, *place, of = call.at()
    n = len(place)
    terms = [read(theta, [batch, of, index.index(n)]).wide()]
    for d, (position, extent) in enumerate(zip(place[::-1], size[:1:-1], strict=True)):
        at = _from_minus_one(position, extent, aligned, theta.dtype)
        terms.append(read(theta, [batch, of, index.index(d)]).wide() * at)
    return total(terms)


def _from_minus_one(position: Node, extent: int, aligned: bool, dtype: DType) -> Expr:
    """Returns the position of a pixel.  If `aligned`, the middles of the first and last pixels are at -1 and
    1; otherwise their outer edges are."""
    wide = DType.F32 if dtype.is_half else dtype
    at = Expr(position).cast(wide)
    if extent == 1:
        return at.constant(0)
    step = 2 / (extent - 1)
    at = where(at < extent // 2, at * step - 1, 1 - (extent - 1 - at) * step)
    at = at.cast(dtype).wide()
    return at if aligned else (at * (extent - 1) / extent).cast(dtype).wide()
