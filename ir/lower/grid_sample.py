"""Sampling images where a grid of positions says, and the grids of affine maps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr, absolute, floor, minimum, rint, trunc, where
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, read
from frameloom.ir.node import Node
from frameloom.ir.program import is_cuda

BILINEAR, NEAREST = 0, 1
ZEROS, BORDER, REFLECTION = 0, 1, 2

Tap = tuple[Node, Expr, Expr]  # a pixel of one dimension, whether it is in the image, its weight


@lowering("aten.grid_sampler_2d.default")
def grid_sampler(call: Call, x: Ref, grid: Ref, mode: int, padding: int, aligned: bool) -> Expr:
    if is_cuda(call.device) or x.dtype not in (DType.F32, DType.F64) or 0 in x.shape:
        raise Decline
    if mode not in (BILINEAR, NEAREST) or x.dtype is not grid.dtype:
        raise Decline
    if x.shape[1] > 1:
        raise Decline  # where a pixel lies would be found again for each channel
    batch, channel, *place = call.at()
    taps = []
    for d, extent in enumerate(x.shape[2:]):
        at = read(grid, [batch, *place, index.index(x.ndim - 3 - d)])
        at = _in_image(at, extent, padding, aligned)
        taps.append(_nearest(at, extent) if mode == NEAREST else _linear(at, extent))
    total: Expr | None = None
    for chosen in itertools.product(*taps):
        inside, weight = chosen[0][1], chosen[0][2]
        for _, also, more in chosen[1:]:
            inside, weight = inside & also, weight * more
        value = read(x, [batch, channel, *(pixel for pixel, *_ in chosen)], inside.node)
        if mode == NEAREST:
            return value
        total = value * weight if total is None else total + value * weight
    assert total is not None
    return total


def _in_image(at: Expr, extent: int, padding: int, aligned: bool) -> Expr:
    """Where a position of the grid, from -1 to 1, lies in pixels."""
    at = (at + 1) * ((extent - 1) / 2) if aligned else (at + 1) * (extent / 2) - 0.5
    if padding == REFLECTION:
        at = _reflected(at, extent, aligned)
    if padding == ZEROS:
        return at
    at = where(at > 0, at, 0)  # a NaN becomes 0
    return minimum(at, extent - 1)


def _reflected(at: Expr, extent: int, aligned: bool) -> Expr:
    low, turn = (0.0, 2.0 * (extent - 1)) if aligned else (-0.5, 2.0 * extent)
    if not turn:
        return at.constant(0)
    size = absolute(at - low)
    rest = size - trunc(size / turn) * turn
    return minimum(rest, turn - rest) + low


def _pixel(at: Expr, extent: int, weight: Expr) -> Tap:
    return at.cast(DType.I32).cast(DType.I64).node, (at >= 0) & (at <= extent - 1), weight


def _nearest(at: Expr, extent: int) -> list[Tap]:
    return [_pixel(rint(at), extent, at)]


def _linear(at: Expr, extent: int) -> list[Tap]:
    first = floor(at)
    behind = at - first
    return [_pixel(first, extent, 1 - behind), _pixel(first + 1, extent, behind)]


@lowering("aten.affine_grid_generator.default")
def affine_grid(call: Call, theta: Ref, size: Sequence[int], aligned: bool) -> Expr:
    if theta.dtype is None or not theta.dtype.is_float:
        raise Decline
    batch, *place, of = call.at()
    n = len(place)
    total = read(theta, [batch, of, index.index(n)]).wide()
    for d, (position, extent) in enumerate(zip(place[::-1], size[:1:-1], strict=True)):
        at = _from_minus_one(position, extent, aligned, theta.dtype)
        total = total + read(theta, [batch, of, index.index(d)]).wide() * at
    return total


def _from_minus_one(position: Node, extent: int, aligned: bool, dtype: DType) -> Expr:
    """The middles of pixels from -1 to 1, or their corners on those."""
    wide = DType.F32 if dtype.is_half else dtype
    at = Expr(position).cast(wide)
    if extent == 1:
        return at.constant(0)
    step = 2 / (extent - 1)
    at = where(at < extent // 2, at * step - 1, 1 - (extent - 1 - at) * step)
    at = at.cast(dtype).wide()
    return at if aligned else (at * (extent - 1) / extent).cast(dtype).wide()
