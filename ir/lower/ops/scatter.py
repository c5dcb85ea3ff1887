"""Writes at positions that depend on data: scatter, index_add, index_copy, index_put, embedding's backward.

The result starts as a copy and is updated (table.Scattered).  Indices out of range raise eager's exceptions.
On a GPU, only updates that eager does with atomics, too, are lowered, and none if the program asks for
determinism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from frameloom.ir.dtype import DType
from frameloom.ir.index import index
from frameloom.ir.lower.expr import Expr, Number, where
from frameloom.ir.lower.ops.gather import (
    data_index,
    indexed,
    inside,
    out_of_bounds,
    place_of_indices,
    wrapped,
)
from frameloom.ir.lower.table import (
    Call,
    Decline,
    Ref,
    Scattered,
    Update,
    broadcasts,
    dimension,
    lowering,
    positions,
    read,
)
from frameloom.ir.node import Node, const
from frameloom.ir.ops import Op
from frameloom.ir.program import is_cuda
from frameloom.ir.reductions import identity
from frameloom.ir.substitute import conjunction
from frameloom.ir.symbolic.expr import hint_of

KINDS = {
    "add": "sum", "sum": "sum", "mean": "sum", "multiply": "prod", "prod": "prod", "amax": "max", "amin": "min",
}  # fmt: skip
UNRANGED = "index out of range in self"
ATOMIC = {
    "sum": (DType.F16, DType.BF16, DType.F32, DType.F64, DType.I32, DType.I64),
    "max": (DType.I32, DType.I64),
    "min": (DType.I32, DType.I64),
}


def updated(call: Call, x: Ref, *updates: Update) -> Scattered:
    """Returns `x` with updates."""
    return Scattered(read(x, call.at()), _allowed(call, updates))


def _allowed(call: Call, updates: Sequence[Update]) -> tuple[Update, ...]:
    if updates and 0 in call.shape:
        raise Decline  # every index is out of range
    if updates and is_cuda(call.device):
        if torch.are_deterministic_algorithms_enabled():
            raise Decline
        if any(u.kind != "set" and not _is_atomic(call, u) for u in updates):
            raise Decline
    return tuple(updates)


def _is_atomic(call: Call, u: Update) -> bool:
    # Eager adds 16-bit floats in pairs; adding single ones is twice as slow.
    is_fast = not call.dtype.is_half or _by_rows(call, u)
    return is_fast and call.dtype in ATOMIC.get(u.kind, ())


def _by_rows(call: Call, u: Update) -> bool:
    """Whether neighbours in memory are updated together."""
    last = max(
        range(len(u.at)),
        key=lambda d: (hint_of(call.shape[d]) > 1, -hint_of(call.results[0].strides[d])),
    )
    return u.at[last].op is Op.AXIS and call.results[0].strides[last] == 1


def update(kind: str, over: Sequence[Node], at: Sequence[Node], mask: Node, value: Expr) -> Update:
    """Returns an update with a position for every position of `over`, a result of `positions`."""
    return Update(kind, tuple(n.arg for n in over if n.op is Op.AXIS), tuple(at), mask, value)


def number(value: Number, dtype: DType) -> Expr:
    """Returns a number of the program as an element; declines one that does not fit."""
    if dtype.is_int:
        if isinstance(value, float) and not math.isfinite(value):
            raise Decline
        bits = dtype.bits - (dtype.kind == "i")
        if not -(1 << bits) * (dtype.kind == "i") <= int(value) < 1 << bits:
            raise Decline
    return Expr(const(value, dtype))


# --- one index per value


@lowering("aten.scatter.src", if_empty="ask")
def scatter_src(call: Call, x: Ref, dim: int, indices: Ref, source: Ref) -> Scattered:
    return _scatter(call, x, dim, indices, source, "set")


@lowering("aten.scatter_add.default", if_empty="ask")
def scatter_add(call: Call, x: Ref, dim: int, indices: Ref, source: Ref) -> Scattered | Expr:
    return _rounded_once(call, _scatter(call, x, dim, indices, source, "sum"))


def _rounded_once(call: Call, done: Scattered) -> Scattered | Expr:
    """Returns the result; on the CPU eager accumulates 16-bit floats in F32 and rounds once."""
    if is_cuda(call.device) or not call.dtype.is_half or not done.updates:
        return done
    wide = replace(call.results[0], dtype=DType.F32, torch_dtype=torch.float32)
    return read(call.temporary(done, wide), call.at()).cast(call.dtype)


def _scatter(
    call: Call, x: Ref, dim: int, indices: Ref, source: Ref | Expr, kind: str
) -> Scattered:
    if indices.ndim != x.ndim:
        raise Decline
    return _along(call, x, dim, indices.shape, lambda at: data_index(indices, at), source, kind)


def _along(
    call: Call, x: Ref, dim: int, shape: Sequence[int], row_of: Callable[[list[Node]], Expr],
    source: Ref | Expr, kind: str, exception: str = "RuntimeError", message: str = "",
) -> Scattered:  # fmt: skip
    """Updates elements of `x` by those of `source`, which has this shape.  Each has the same place in both,
    except along `dim`, where `row_of` its position in `source` is its place in `x`.  The exception is for a
    place that is out of bounds; without a message, it has eager's usual one."""
    if x.ndim == 0 or x.dtype is not call.dtype:
        raise Decline
    if isinstance(source, Ref) and (source.ndim != x.ndim or source.dtype is not x.dtype):
        raise Decline
    if 0 in shape:
        return updated(call, x)
    dim = dimension(dim, x.ndim)
    over = positions(shape)
    row = row_of(over)
    mask = inside(row, x.shape[dim])
    call.check(Expr(mask), exception, message or out_of_bounds(dim, x.shape[dim]))
    value = read(source, over) if isinstance(source, Ref) else source
    at = [*over[:dim], row.node, *over[dim + 1 :]]
    return updated(call, x, update(kind, over, at, mask, value))


@lowering("aten.scatter.value", if_empty="ask")
def scatter_value(call: Call, x: Ref, dim: int, indices: Ref, value: Number) -> Expr | Scattered:
    if x.dtype is None or x.ndim == 0:
        raise Decline
    filled = number(value, x.dtype)
    dim = dimension(dim, x.ndim)
    slice_shape = tuple(1 if d == dim else extent for d, extent in enumerate(x.shape))
    if indices.shape != slice_shape or 0 in slice_shape:
        return _scatter(call, x, dim, indices, filled, "set")
    # There is one index per slice along `dim`, as for one_hot.
    at = call.at()
    place = data_index(indices, [index(0) if d == dim else p for d, p in enumerate(at)])
    mask = inside(place, x.shape[dim])
    call.check(Expr(mask), "RuntimeError", out_of_bounds(dim, x.shape[dim]))
    return where(place.eq(Expr(at[dim])), filled, read(x, at))


@lowering("aten.scatter.value_reduce", if_empty="ask")
def scatter_value_with(
    call: Call, x: Ref, dim: int, indices: Ref, value: Number, reduce: str
) -> Scattered | Expr:
    if x.dtype is None:
        raise Decline
    done = _scatter(call, x, dim, indices, number(value, x.dtype), KINDS[reduce])
    return _rounded_once(call, done)


@lowering("aten.scatter_reduce.two", if_empty="ask")
def scatter_reduce(
    call: Call, x: Ref, dim: int, indices: Ref, source: Ref, reduce: str, include_self: bool
) -> Scattered | Expr:
    done = _scatter(call, x, dim, indices, source, KINDS[reduce])
    return _folded(call, done, reduce, include_self)


def _folded(call: Call, done: Scattered, reduce: str, include_self: bool) -> Scattered | Expr:
    """Returns the reduction of the scattered values, with the elements of `x` or without them.  The mean is
    the sum divided by the number of values."""
    if not include_self:
        nothing = Expr(const(identity(KINDS[reduce], call.dtype), call.dtype))
        first = tuple(replace(u, kind="set", value=nothing) for u in done.updates)
        done = replace(done, updates=_allowed(call, (*first, *done.updates)))
    if reduce != "mean" or not done.updates:
        return _rounded_once(call, done)
    if call.dtype is DType.BOOL:
        raise Decline
    one = Expr(const(1, call.dtype))
    start = one if include_self else Expr(const(0, call.dtype))
    counted = Scattered(start, tuple(replace(u, value=one) for u in done.updates[-1:]))
    total, count = (_rounded_once(call, value) for value in (done, counted))
    if isinstance(total, Scattered) and isinstance(count, Scattered):
        parts = [call.temporary(value, call.results[0]) for value in (total, count)]
        total, count = (read(part, call.at()) for part in parts)
    assert isinstance(total, Expr) and isinstance(count, Expr)
    count = where(count.wide().eq(0), one.wide(), count.wide())
    op = Op.DIV if call.dtype.is_float else Op.FLOORDIV
    return total.wide().binary(op, count)


# --- one index per slice


@lowering("aten.index_add.default", if_empty="ask")
def index_add(
    call: Call, x: Ref, dim: int, indices: Ref, source: Ref, alpha: Number
) -> Scattered | Expr:
    several = x.ndim > 1 and alpha == 1
    error = ("RuntimeError", "") if several else ("IndexError", UNRANGED)
    done = _by_slices(call, x, dim, indices, source, "sum", *error)
    if alpha == 1:
        # For several dimensions, eager uses scatter_add.
        return _rounded_once(call, done) if several else done
    if call.dtype is DType.BOOL or call.dtype.is_half:
        raise Decline  # eager rounds once
    times = number(alpha, call.dtype)
    return replace(done, updates=tuple(replace(u, value=u.value * times) for u in done.updates))


@lowering("aten.index_copy.default", if_empty="ask")
def index_copy(call: Call, x: Ref, dim: int, indices: Ref, source: Ref) -> Scattered:
    return _by_slices(call, x, dim, indices, source, "set")


@lowering("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor", if_empty="ask")
def index_fill(call: Call, x: Ref, dim: int, indices: Ref, value: Number | Ref) -> Scattered:
    if x.dtype is None:
        raise Decline
    if isinstance(value, Ref):
        filled = read(value, []).cast(call.dtype)
    else:
        filled = number(value, x.dtype)
    return _by_slices(call, x, dim, indices, filled, "set")


def _by_slices(
    call: Call, x: Ref, dim: int, indices: Ref, source: Ref | Expr, kind: str,
    exception: str = "IndexError", message: str = "",
) -> Scattered:  # fmt: skip
    """Updates slices along `dim`, at the places in the vector `indices`, by those of `source`.  If `source`
    is no tensor (fill), negative indices count from the end."""
    dim = dimension(dim, x.ndim)
    shape = [indices.numel if d == dim else extent for d, extent in enumerate(x.shape)]

    def row(at: list[Node]) -> Expr:
        place = data_index(indices, [at[dim]] if indices.ndim else [])
        return place if isinstance(source, Ref) else wrapped(place, x.shape[dim])

    return _along(call, x, dim, shape, row, source, kind, exception, message)


# --- indices of several dimensions


@lowering("aten.index_put.default", "aten._unsafe_index_put.default", if_empty="ask")
def index_put(
    call: Call, x: Ref, indices: Sequence[Ref | None], values: Ref, accumulate: bool
) -> Scattered | Expr:
    if x.dtype is not call.dtype or values.dtype is not x.dtype:
        raise Decline
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(given) == 1 and given[0][1].dtype is DType.BOOL:
        return _where_masked(call, x, *given[0], values, accumulate)
    if accumulate and is_cuda(call.device):
        raise Decline  # eager sorts the indices, so that the sums are the same every time
    first = place_of_indices(x, indices)[0]
    tensors = [i for i in indices if i is not None]
    shared = torch.broadcast_shapes(*(i.shape for i in tensors))  # type: ignore[no-untyped-call]
    rest = [e for d, e in enumerate(x.shape) if d >= len(indices) or indices[d] is None]
    shape = (*rest[:first], *shared, *rest[first:])
    if not broadcasts(values.shape, shape):
        raise Decline  # eager raises
    if 0 in shape:
        return updated(call, x)
    over = positions(shape)
    at, mask = indexed(call, x, indices, over)
    return updated(
        call, x, update("sum" if accumulate else "set", over, at, mask, read(values, over))
    )


def _where_masked(call: Call, x: Ref, first: int, mask: Ref, values: Ref, accumulate: bool) -> Expr:
    """Returns `x[..., mask] = value`, with the same value for every true element; the mask is over the
    dimensions from `first` on."""
    last = first + mask.ndim
    one = (*x.shape[:first], 1, *x.shape[last:])
    if mask.shape != x.shape[first:last] or 0 in x.shape or not broadcasts(values.shape, one):
        raise Decline
    at = call.at()
    here, before = read(values, [*at[:first], index(0), *at[last:]]), read(x, at)
    if accumulate:
        here = (before.wide() + here.wide()).cast(call.dtype)
    return where(read(mask, at[first:last]), here, before)


@lowering("aten.embedding_dense_backward.default", if_empty="library")
def embedding_dense_backward(
    call: Call, gradient: Ref, indices: Ref, rows: int, padding: int, scale_by_frequency: bool
) -> Scattered:
    # On a GPU eager sorts the indices, so that the sums are the same every time.
    if is_cuda(call.device) or scale_by_frequency or gradient.dtype is not call.dtype:
        raise Decline
    if 0 in gradient.shape or gradient.shape[:-1] != indices.shape:
        raise Decline
    over = positions(gradient.shape)
    row = data_index(indices, over[:-1])
    mask = conjunction(inside(row, rows), row.ne(padding).node)
    change = update("sum", over, [row.node, over[-1]], mask, read(gradient, over))
    return Scattered(Expr(const(0, call.dtype)), (change,))
