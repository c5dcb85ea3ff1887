"""Random numbers on a GPU: the same numbers that eager draws (philox.py), computed where they are used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr, where
from frameloom.ir.lower.geometry import contiguous_strides
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, product, read
from frameloom.ir.node import Node
from frameloom.ir.philox import ALIGNMENT
from frameloom.ir.symbolic.expr import Size

MAX_BYTES = (1 << 31) - 1  # bytes that eager's kernels address; larger tensors are drawn in parts


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements do not overlap and there are no gaps."""
    reach = 1
    for stride, extent in sorted((s, e) for e, s in zip(shape, strides, strict=True) if e != 1):
        if stride != reach:
            return False
        reach *= extent
    return True


def _in_memory(call: Call) -> Node:
    """Returns the position of an element of the result, counted in memory order."""
    result = call.results[0]
    _decline_sizes(call)
    if not is_dense(result.shape, result.strides):
        raise Decline
    if product(result.shape) * result.dtype.bytes > MAX_BYTES:
        raise Decline
    return index.linear(call.at(), result.strides)


def _decline_sizes(call: Call) -> None:
    """Declines symbolic sizes.  The count of numbers decides which of the generator's numbers an element
    gets, and how far the offset moves; if the count is symbolic, the library draws."""
    if any(isinstance(n, Size) for n in call.shape):
        raise Decline


def _drawn(call: Call) -> Expr:
    """Returns a number in (0, 1] for every element of the result, as drawn by functions that fill a tensor.
    Every element takes a whole block.  If the result is only stored, the library's kernel is faster, as it
    uses all words of a block."""
    if call.is_only_stored():
        raise Decline
    generator = call.generator
    position = _in_memory(call)
    count = product(call.shape)
    return call.draw(generator.scattered(count), position, count)


@lowering("aten.native_dropout.default")
def native_dropout(call: Call, x: Ref, p: float, train: bool | None) -> list[Expr]:
    source = call.source
    if source is None or train is False or not 0 <= p < 1:
        raise Decline
    _decline_sizes(call)
    if x.dtype is None or not x.dtype.is_float or product(x.shape) * x.dtype.bytes > MAX_BYTES:
        raise Decline
    count, item = product(x.shape), x.dtype.bytes
    dense = is_dense(x.shape, source.strides)
    alignment = math.gcd(source.offset * item, ALIGNMENT) if dense else 0
    stream = call.generator.of_dropout(count, item, alignment)
    # Kernels that read several elements at a time count elements in memory order, others in row-major order.
    strides = source.strides if stream.width > 1 else contiguous_strides(x.shape)
    number = call.draw(stream, index.linear(call.at(), strides), count)
    if stream.width > 1:
        call.draws[-1].aligned = source.input
    wide = DType.F64 if x.dtype is DType.F64 else DType.F32
    keep_probability = _rounded(1 - p, wide)
    mask = number.cast(wide) < keep_probability
    value = read(x, call.at()).cast(wide) * mask.cast(wide) * _rounded(1 / keep_probability, wide)
    return [value, mask]


@lowering("aten.bernoulli.p")
def bernoulli(call: Call, x: Ref, p: float, generator: Any) -> Expr:
    if generator is not None or call.dtype is DType.F64 or not 0 <= p <= 1:
        raise Decline
    # Eager compares with `p` in double precision.
    least = torch.tensor(_rounded(p, DType.F32))
    if least < p:
        least = torch.nextafter(least, torch.tensor(math.inf))
    return (_drawn(call) < float(least)).cast(call.dtype)


@lowering("aten.rand.default", "aten.rand_like.default")
def rand(call: Call, *arguments: Any) -> Expr:
    return _uniform(call, 0.0, 1.0)


@lowering("aten.uniform.default")
def uniform(call: Call, x: Ref, low: float, high: float, generator: Any) -> Expr:
    if generator is not None:
        raise Decline
    return _uniform(call, low, high)


def _uniform(call: Call, low: float, high: float) -> Expr:
    """Returns numbers in [low, high): a value that rounds to `high` becomes `low`."""
    dtype = call.dtype
    if not dtype.is_float or dtype is DType.F64:
        raise Decline
    low, high = _rounded(low, dtype), _rounded(high, dtype)
    span = _rounded(high - low, dtype)
    if not (low <= high and math.isfinite(span)):
        raise Decline
    # Eager's kernel multiplies and adds with one rounding.  So the product has to be exact, or nothing is
    # added.
    if low != 0 and math.frexp(span)[0] != 0.5:
        raise Decline
    value = _drawn(call) * span
    if low != 0:
        value = value + low
    value = value.cast(dtype).wide()
    return where(value.eq(high), value.constant(low), value)


def _rounded(value: float, dtype: DType) -> float:
    if dtype is DType.F64:
        return value
    return float(torch.tensor(value, dtype=torch.float64).to(dtype.to_torch()))
