"""Quantization followed by dequantization, as in training for quantization."""

from __future__ import annotations

from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr, reciprocal, rint, where
from frameloom.ir.lower.table import Call, Decline, Ref, dimension, lowering, read
from frameloom.ir.numbers import single
from frameloom.ir.program import is_cuda

MAX_EXACT = 1 << 22  # whole numbers up to this one, and their differences, are exact in F32


@lowering("aten.fake_quantize_per_tensor_affine_cachemask.default")
def per_tensor(
    call: Call, x: Ref, scale: float, zero_point: int, least: int, most: int
) -> list[Expr]:
    value = _element(call, x, least, most)
    scale, inverse = single(scale), single(1.0 / single(scale))
    clamped, inside = _in_range(rint(value * inverse) + zero_point, least, most)
    return [(clamped - zero_point).cast(DType.F32) * scale, inside]


@lowering("aten.fake_quantize_per_channel_affine_cachemask.default")
def per_channel(
    call: Call, x: Ref, scale: Ref, zero_point: Ref, axis: int, least: int, most: int
) -> list[Expr]:
    if scale.dtype is not DType.F32 or zero_point.dtype not in (DType.I32, DType.F32):
        raise Decline
    value = _element(call, x, least, most)
    channel = [call.at()[dimension(axis, x.ndim)]]
    own = read(scale, channel)
    zero = read(zero_point, channel).cast(value.dtype)
    inverse = reciprocal(own).cast(value.dtype)
    if zero_point.dtype is not DType.F32:
        place = rint(value * inverse) + zero
    elif value.dtype is DType.F32:
        # Eager rounds product and sum once; F64 in between has the same result.
        exact = value.cast(DType.F64) * inverse.cast(DType.F64) + zero.cast(DType.F64)
        place = rint(exact.cast(DType.F32))
    else:
        place = rint(value * inverse + zero)
    clamped, inside = _in_range(place, least, most)
    clamped = where(place < float(1 << 63), clamped, least)  # eager computes with an integer there
    # Eager uses double precision here; whole numbers are exact without it.
    wide = DType.F64 if zero_point.dtype is DType.F32 else value.dtype
    return [(clamped.cast(wide) - zero.cast(wide)) * own.cast(wide), inside]


def _element(call: Call, x: Ref, least: int, most: int) -> Expr:
    if x.dtype is None or not x.dtype.is_float or is_cuda(call.device):
        raise Decline
    if max(abs(least), abs(most)) > MAX_EXACT:
        raise Decline
    return read(x, call.at()).wide()


def _in_range(place: Expr, least: int, most: int) -> tuple[Expr, Expr]:
    """Returns `place` limited to the range (a NaN becomes `least`), and whether it was in the range."""
    clamped = where(place > least, where(place > most, most, place), least)
    return clamped, (place >= least) & (place <= most)
