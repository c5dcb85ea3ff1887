"""Reductions: sums, extremes, moments, norms, and ops that use one slice of a tensor (softmax).

Sums of 16-bit floats accumulate in F32, those of integers in I64.  Variance takes two passes (mean first):
this form is accurate, and the code generator merges passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from frameloom.ir import index as index_algebra
from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr, Number, absolute, exp, isinf, isnan, log, sqrt, where
from frameloom.ir.lower.promote import common_dtype
from frameloom.ir.lower.table import (
    Call,
    Decline,
    Ref,
    dimension,
    dimensions,
    lowering,
    product,
    read,
)
from frameloom.ir.node import Axis, Node, axis, index
from frameloom.ir.ops import Op
from frameloom.ir.program import is_cuda
from frameloom.ir.reductions import REDUCTIONS, identity
from frameloom.ir.substitute import fold
from frameloom.ir.symbolic.compare import surely_positive
from frameloom.ir.symbolic.expr import Size, largest


@dataclass(frozen=True)
class ReductionSlice:
    """The elements of a tensor that are reduced to one: `at` is the position of the element at `axes`."""

    at: list[Node]
    axes: tuple[Axis, ...]
    count: int

    def fold(self, kind: str, value: Expr) -> Expr:
        """Returns the reduction of `value` over the slice; for an empty slice, the identity."""
        reduction = REDUCTIONS[kind]
        if self.count == 0:
            if reduction.op in (Op.MAX, Op.MIN):
                raise Decline  # eager refuses
            return value.constant(identity(kind, value.dtype))
        if reduction.of_bools:
            value = value.cast(DType.BOOL)
        if not self.axes:
            if kind == "sum" and value.dtype.is_float:
                return value + 0.0  # a sum starts with 0.0, so it is never -0.0
            return Expr(index(0)) if reduction.position else value
        return Expr(fold(kind, self.axes, value.node))

    def mean(self, value: Expr) -> Expr:
        total = self.fold("sum", value)
        if isinstance(self.count, Size):
            return total / self.count
        return total / float(self.count) if self.count else total.constant(math.nan)


def reduction_slice(
    shape: Sequence[int], dims: Sequence[int], rest: Sequence[Node], keepdim: bool
) -> ReductionSlice:
    """Returns the slice that is reduced to the element at `rest`, a position in the result."""
    at: list[Node] = []
    axes = []
    outer = iter(rest)
    for d, extent in enumerate(shape):
        if d not in dims:
            at.append(next(outer))
            continue
        if keepdim:
            next(outer)
        if extent == 1:
            at.append(index(0))
        else:
            axes.append(Axis(f"d{d}x{extent}", extent))
            at.append(axis(axes[-1]))
    return ReductionSlice(at, tuple(axes), product([shape[d] for d in dims]))


def element(ref: Ref, at: Sequence[Node], dtype: DType | None = None) -> Expr:
    """Returns an element to accumulate: in `dtype` if given; 16-bit floats as F32."""
    value = read(ref, at)
    return (value if dtype is None or dtype is value.dtype else value.cast(dtype)).wide()


def _floating(x: Ref) -> None:
    if x.dtype is None or not x.dtype.is_float:
        raise Decline


def over_dims(
    call: Call, x: Ref, dims: int | Sequence[int] | None, keepdim: bool, result: int = 0
) -> ReductionSlice:
    """Returns the slice of `x` that is reduced to the element of a result; no `dims` means all."""
    return reduction_slice(x.shape, dimensions(dims, x.ndim), call.at(result), keepdim)


# --- sums


@lowering("aten.sum.dim_IntList", "aten.nansum.default", "aten.prod.dim_int")
def sum_dims(call: Call, x: Ref, dims: Any, keepdim: bool, dtype: Any) -> Expr:
    kind = "prod" if "prod" in call.target else "sum"
    if kind == "prod" and call.dtype.is_half and not is_cuda(call.device):
        raise Decline  # eager rounds at every step
    over = over_dims(call, x, dims, keepdim)
    value = element(x, over.at, call.dtype)
    if "nansum" in call.target and value.dtype.is_float:
        value = where(isnan(value), 0.0, value)
    return over.fold(kind, value)


@lowering("aten.sum.default", "aten.prod.default")
def sum_all(call: Call, x: Ref, dtype: Any) -> Expr:
    return sum_dims(call, x, None, False, dtype)


@lowering("aten.trace.default")
def trace(call: Call, x: Ref) -> Expr:
    over = reduction_slice([min(x.shape)], [0], [], keepdim=False)
    return over.fold("sum", element(x, over.at * 2, call.dtype))


@lowering("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(call: Call, x: Ref, dims: Any) -> Expr:
    over = over_dims(call, x, dims, False)
    return over.fold("sum", read(x, over.at).cast(DType.BOOL).cast(DType.I64))


@lowering("aten.mean.dim")
def mean_dims(call: Call, x: Ref, dims: Any, keepdim: bool, dtype: Any) -> Expr:
    if not call.dtype.is_float:
        raise Decline  # eager refuses it
    over = over_dims(call, x, dims, keepdim)
    return over.mean(element(x, over.at, call.dtype))


@lowering("aten.mean.default")
def mean_all(call: Call, x: Ref, dtype: Any) -> Expr:
    return mean_dims(call, x, None, False, dtype)


# --- extremes and truth


def _kind(call: Call) -> str:
    return "max" if "max" in call.target else "min"


def _extreme(call: Call, x: Ref, dims: Any, keepdim: bool, kind: str) -> Expr:
    over = over_dims(call, x, dims, keepdim)
    value = element(x, over.at)
    if value.dtype is DType.BOOL:
        if not over.count:
            raise Decline  # eager refuses it
        kind = {"max": "any", "min": "all"}[kind]
    return over.fold(kind, value)


def _position(call: Call, x: Ref, dim: int | None, keepdim: bool, result: int) -> Expr:
    over = over_dims(call, x, dim, keepdim, result)
    value = element(x, over.at)
    if value.dtype is DType.BOOL:
        value = value.cast(DType.U8)
    return over.fold(f"arg{_kind(call)}", value)


@lowering("aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default")
def extreme(call: Call, x: Ref, dims: Any = None, keepdim: bool = False) -> Expr:
    return _extreme(call, x, dims, keepdim, _kind(call))


@lowering("aten.max.dim", "aten.min.dim")
def extreme_and_position(call: Call, x: Ref, dim: int, keepdim: bool) -> list[Expr]:
    return [_extreme(call, x, dim, keepdim, _kind(call)), _position(call, x, dim, keepdim, 1)]


@lowering("aten.aminmax.default")
def aminmax(call: Call, x: Ref, dim: int | None, keepdim: bool) -> list[Expr]:
    return [_extreme(call, x, dim, keepdim, kind) for kind in ("min", "max")]


@lowering("aten.argmax.default", "aten.argmin.default", if_empty="ask")
def position(call: Call, x: Ref, dim: int | None, keepdim: bool) -> Expr:
    if x.dtype is DType.BOOL:
        raise Decline  # eager refuses
    return _position(call, x, dim, keepdim, 0)


@lowering(
    "aten.any.default", "aten.all.default", "aten._is_any_true.default", "aten._is_all_true.default",
    "aten.any.dim", "aten.all.dim", "aten.any.dims", "aten.all.dims",
)  # fmt: skip
def truth(call: Call, x: Ref, dims: Any = None, keepdim: bool = False) -> Expr:
    if dims == []:  # unlike for sums, an empty list means no dimension at all
        return read(x, call.at())
    over = over_dims(call, x, dims, keepdim)
    return over.fold("all" if "all" in call.target else "any", read(x, over.at).cast(DType.BOOL))


# --- moments


def _variance(
    call: Call, x: Ref, dims: Any, correction: Number | None, keepdim: bool
) -> tuple[Expr, Expr]:
    """Returns variance and mean.  On the CPU eager computes those of F32 in F64, where squares do not
    overflow."""
    _floating(x)
    over = over_dims(call, x, dims, keepdim)
    wide = DType.F64 if x.dtype is DType.F32 and not is_cuda(call.device) else None
    value = element(x, over.at, wide)
    # For a single variance of all elements, the deviations are from the mean in F32.
    whole = len(call.results) == 1 and all(type(n) is int and n == 1 for n in call.shape)
    if wide is not None and whole:
        mean = over.mean(element(x, over.at)).cast(wide)
    else:
        mean = over.mean(value)
    if not over.count:
        return mean, mean  # not a number, whatever the correction
    deviation = value - mean
    if wide is None and surely_positive(over.count) and not (whole and not is_cuda(call.device)):
        # The rounded mean of equal numbers may differ from them, but their variance must be zero.  So the
        # mean is taken of differences from the first element, which is exact for equal numbers.
        shifted = value - element(x, _ends(x, over.at, dims, 0))
        deviation = shifted - over.mean(shifted)
    correction = 1 if correction is None else correction
    if isinstance(over.count, Size):
        if correction != int(correction):
            raise Decline
        return over.fold("sum", deviation * deviation) / largest(
            over.count - int(correction), 0
        ), mean
    degrees = max(0.0, over.count - correction)
    return over.fold("sum", deviation * deviation) / degrees, mean


def _running_mean(call: Call, x: Ref, dims: Any, keepdim: bool, mean: Expr) -> Expr:
    """Returns the mean that comes with a variance.  On the CPU eager updates it element by element, so an
    element after an infinite one makes it NaN."""
    if is_cuda(call.device) or 0 in x.shape:
        return mean
    last = _ends(x, over_dims(call, x, dims, keepdim, 1).at, dims, -1)
    lost = isinf(mean) & ~isinf(element(x, last))
    return where(lost, math.nan, mean)


def _ends(x: Ref, at: Sequence[Node], dims: Any, end: int) -> list[Node]:
    """Returns the position of the first (0) or last (-1) element along the reduced dimensions."""
    position = list(at)
    for d in dimensions(dims, x.ndim):
        position[d] = index_algebra.index(x.shape[d] - 1 if end else 0)
    return position


@lowering(
    "aten.var.correction", "aten.std.correction", "aten.var_mean.correction",
    "aten.std_mean.correction",
)  # fmt: skip
def variance(
    call: Call, x: Ref, dims: Any, correction: Number | None, keepdim: bool
) -> Expr | list[Expr]:
    variance, mean = _variance(call, x, dims, correction, keepdim)
    if "std" in call.target:
        variance = sqrt(variance)
    if "mean" not in call.target:
        return variance
    return [variance, _running_mean(call, x, dims, keepdim, mean)]


# --- norms


@lowering("aten.linalg_vector_norm.default")
def vector_norm(call: Call, x: Ref, order: Number, dims: Any, keepdim: bool, dtype: Any) -> Expr:
    _floating(x)
    if order < 0 and 0 in x.shape:
        raise Decline  # an error for some orders
    over = over_dims(call, x, dims, keepdim)
    value = element(x, over.at, call.dtype if dtype is not None else None)
    return _norm(over, value, order)


def _norm(over: ReductionSlice, value: Expr, order: Number) -> Expr:
    if order == 2:
        return sqrt(over.fold("sum", value * value))
    size = absolute(value)
    if order == 1:
        return over.fold("sum", size)
    if order == math.inf:
        return over.fold("max", size)
    if order == -math.inf:
        return over.fold("min", size)
    if order == 0:
        return over.fold("sum", value.ne(0).cast(value.dtype))
    power = sqrt(size) if order == 0.5 else _power(size, order)
    return _power(over.fold("sum", power), 1.0 / order)


@lowering("aten.norm.ScalarOpt_dim", "aten.norm.Scalar")
def norm(call: Call, x: Ref, order: Number | None, dims: Any = None, keepdim: bool = False) -> Expr:
    return vector_norm(call, x, 2 if order is None else order, dims, keepdim, None)


@lowering("aten.dist.default")
def dist(call: Call, x: Ref, y: Ref, order: Number) -> Expr:
    common = common_dtype([x, y])
    shape = torch.broadcast_shapes(x.shape, y.shape)  # type: ignore[no-untyped-call]
    if not common.is_float or (order < 0 and 0 in shape):
        raise Decline
    over = reduction_slice(shape, range(len(shape)), [], keepdim=False)
    a, b = (read(t, over.at).cast(common).wide() for t in (x, y))
    return _norm(over, (a - b).cast(common).wide(), order)


@lowering("aten.renorm.default")
def renorm(call: Call, x: Ref, order: Number, dim: int, most: Number) -> Expr:
    """Lowers renorm: slices along `dim` whose norm is greater than `most` are scaled down to it."""
    _floating(x)
    rest = [d for d in range(x.ndim) if d != dimension(dim, x.ndim)]
    over = reduction_slice(x.shape, rest, call.at(), keepdim=True)
    norm = _norm(over, element(x, over.at), order)
    return read(x, call.at()).wide() * where(norm > most, most / (norm + 1e-7), 1)


def _power(x: Expr, exponent: Number) -> Expr:
    return x.binary(Op.POW, float(exponent))


# --- softmax and its relatives


@lowering("aten.logsumexp.default")
def logsumexp(call: Call, x: Ref, dims: Any, keepdim: bool) -> Expr:
    _floating(x)
    if x.ndim and not dims:
        raise Decline  # eager refuses
    over = over_dims(call, x, dims, keepdim)
    value = element(x, over.at)
    if over.count == 0:
        return value.constant(-math.inf)
    top = over.fold("max", value)
    top = where(isinf(absolute(top)), 0.0, top)
    return log(over.fold("sum", exp(value - top))) + top


def _softmax_parts(call: Call, x: Ref, dim: int) -> tuple[Expr, Expr, Expr]:
    """Returns the element, its slice's maximum, and the slice's sum of exponentials."""
    _floating(x)
    over = over_dims(call, x, dim, keepdim=True)
    value = element(x, over.at)
    top = over.fold("max", value)
    return element(x, call.at()), top, over.fold("sum", exp(value - top))


@lowering("aten._softmax.default")
def softmax(call: Call, x: Ref, dim: int, half_to_float: bool) -> Expr:
    value, top, total = _softmax_parts(call, x, dim)
    return exp(value - top) / total


@lowering("aten._safe_softmax.default")
def safe_softmax(call: Call, x: Ref, dim: int, dtype: Any) -> Expr:
    if dtype is not None:
        raise Decline
    value, top, total = _softmax_parts(call, x, dim)
    return where(top.eq(-math.inf), 0.0, exp(value - top) / total)


@lowering("aten._log_softmax.default")
def log_softmax(call: Call, x: Ref, dim: int, half_to_float: bool) -> Expr:
    value, top, total = _softmax_parts(call, x, dim)
    return value - top - log(total)
