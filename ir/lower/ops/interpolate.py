"""Resizing images: nearest, linear and cubic interpolation along each dimension.

The place of a result's pixel in the image is a fraction times its position.  The index of the pixel below it
is computed in integers (so that loads can be analyzed).  The distance behind that pixel is computed in
floats, as in eager, because the rounding is part of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from frameloom.ir import index
from frameloom.ir.dtype import DType, single
from frameloom.ir.lower.expr import Expr, maximum, total
from frameloom.ir.lower.ops.copies import clamped
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, read
from frameloom.ir.node import Node
from frameloom.ir.program import is_cuda

MAX_DENOMINATOR = 1 << 16


def _divided(numerator: Node, denominator: int) -> Node:
    """Returns the floor of a quotient; it makes a negative numerator positive first, because that divides
    faster."""
    span = index.bounds(numerator)
    assert span is not None
    turns = max(0, -(span[0] // denominator))
    moved = index.add(numerator, index.index(turns * denominator))
    return index.add(index.floordiv(moved, denominator), index.index(-turns))


@dataclass(frozen=True)
class Side:
    """One dimension: positions of the result, extents of image and result, image pixels per pixel of the
    result."""

    at: Node
    extent: int
    places: int
    scale: float
    aligned: bool = False  # whether the corners of image and result coincide
    on_cpu: bool = True

    def fraction(self) -> tuple[int, int]:
        ratio = Fraction(self.scale).limit_denominator(MAX_DENOMINATOR)
        return ratio.numerator, ratio.denominator

    def below(self) -> Node:
        """Returns the pixel of the image at or below a pixel of the result, not clamped."""
        p, q = self.fraction()
        if self.aligned:
            return _divided(index.mul(self.at, p), q)
        return _divided(index.add(index.mul(self.at, 2 * p), index.index(p - q)), 2 * q)

    def place(self, dtype: DType, once: bool = False) -> Expr:
        """Returns the place of a pixel of the result in the image.  `once`: rounded once, as by a fused
        multiply-add."""
        at = Expr(self.at).cast(DType.F64 if once else dtype)
        place = at * self.scale if self.aligned else (at + 0.5) * self.scale - 0.5
        return place.cast(dtype)


def _sides(
    call: Call, x: Ref, scales: Sequence[float | None], dtype: DType, aligned: bool = False
) -> list[Side]:
    """Returns the dimensions that are resized.  Scales are computed in `dtype`, as in eager's kernels."""
    if x.dtype is None or 0 in x.shape:
        raise Decline
    rounded = float if dtype is DType.F64 else single
    sides = []
    n = len(scales)
    for at, extent, places, given in zip(
        call.at()[-n:], x.shape[-n:], call.shape[-n:], scales, strict=True
    ):
        if aligned:
            scale = rounded(rounded(extent - 1) / rounded(places - 1)) if places > 1 else 0.0
        elif given is not None and given > 0:
            scale = rounded(1.0 / given)
        else:
            scale = rounded(rounded(extent) / rounded(places))
        if extent == places and scale != 1 and places > 1:
            raise Decline  # eager's kernels differ on whether that is a copy
        sides.append(Side(at, extent, places, scale, aligned, not is_cuda(call.device)))
    return sides


# --- nearest


@lowering(
    "aten.upsample_nearest1d.default", "aten._upsample_nearest_exact1d.default",
    "aten.upsample_nearest2d.default", "aten._upsample_nearest_exact2d.default",
    "aten.upsample_nearest3d.default", "aten._upsample_nearest_exact3d.default",
)  # fmt: skip
def nearest(call: Call, x: Ref, size: Sequence[int], *scales: float | None) -> Expr:
    if x.dtype is None or not (x.dtype.is_float or x.dtype is DType.U8):
        raise Decline
    at = call.at()
    for d, side in enumerate(_sides(call, x, scales, DType.F32), start=x.ndim - len(scales)):
        at[d] = _nearest_index(side, "exact" in call.target)
    return read(x, at)


def _nearest_index(side: Side, middle: bool) -> Node:
    p, q = side.fraction()
    exact = index.mul(side.at, p)
    if middle:
        exact, q = index.add(index.mul(exact, 2), index.index(p)), 2 * q
    for o in range(side.places):
        wanted = math.floor(single(single(single(o) + 0.5 * middle) * side.scale))
        if side.places == 2 * side.extent and not middle:
            wanted = o // 2
        numerator = o * p * (2 if middle else 1) + p * middle
        if min(wanted, side.extent - 1) != min(numerator // q, side.extent - 1):
            raise Decline  # eager rounds to another pixel
    return clamped(index.floordiv(exact, q), side.extent - 1)


# --- weighted sums of neighbours, dimension by dimension

Taps = list[tuple[Node, Expr]]  # pixels of one dimension, and their weights


@lowering(
    "aten.upsample_linear1d.default", "aten.upsample_bilinear2d.default",
    "aten.upsample_trilinear3d.default", "aten.upsample_bicubic2d.default",
)  # fmt: skip
def weighted(call: Call, x: Ref, size: Sequence[int], aligned: bool, *scales: float | None) -> Expr:
    if x.dtype is None or not x.dtype.is_float:
        raise Decline
    taps_of = _cubic if "cubic" in call.target else _linear
    if taps_of is _linear and _prefers_library(call, x, len(scales)):
        raise Decline
    wide = DType.F32 if x.dtype.is_half else x.dtype
    sides = _sides(call, x, scales, wide, aligned)
    taps = [taps_of(side, wide) for side in sides]
    return _sum(x, call.at()[: -len(sides)], taps)


def _prefers_library(call: Call, x: Ref, n: int) -> bool:
    """Whether the library is faster: on the CPU, vectors of neighbouring pixels are collected one by one, and
    the library computes their places once for all rows."""
    return not is_cuda(call.device) and 1 in x.strides[x.ndim - n :]


def _sum(x: Ref, at: Sequence[Node], taps: Sequence[Taps]) -> Expr:
    if not taps:
        return read(x, at).wide()
    return total(_sum(x, [*at, position], taps[1:]) * weight for position, weight in taps[0])


def _linear(side: Side, dtype: DType) -> Taps:
    if side.extent == side.places:
        return [(side.at, Expr(index.index(1)).cast(dtype))]
    first = clamped(side.below(), side.extent - 1)
    second = clamped(index.add(first, index.index(1)), side.extent - 1)
    place = side.place(dtype, once=side.on_cpu)  # the same rounding as eager's
    if not side.aligned:
        place = maximum(place, 0)
    behind = place - Expr(first).cast(dtype)
    return [(first, 1 - behind), (second, behind)]


def _cubic(side: Side, dtype: DType) -> Taps:
    if side.extent == side.places:
        raise Decline  # one of eager's kernels copies here, the other does not
    below = side.below()
    t = side.place(dtype) - Expr(below).cast(dtype)
    a = -0.75

    def near(x: Expr) -> Expr:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Expr) -> Expr:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = [far(t + 1), near(t), near(1 - t), far((1 - t) + 1)]
    return [
        (clamped(index.add(below, index.index(k - 1)), side.extent - 1), weight)
        for k, weight in enumerate(weights)
    ]
