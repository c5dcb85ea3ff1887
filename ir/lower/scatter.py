"""Writes at positions that data decides: scatter and its kinds, index_add, index_copy, index_put, the backward of embedding.

The result starts as a copy and is updated (table.Scattered).  Indices outside raise what eager raises.  On a GPU, only what
eager does with atomics, too, and nothing where the program asks for determinism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from frameloom.ir.dtype import DType
from frameloom.ir.index import index
from frameloom.ir.lower.expr import Expr, Number, where
from frameloom.ir.lower.gather import data_index, indexed, inside, out_of_bounds, wrapped
from frameloom.ir.lower.table import (
    Call,
    Decline,
    Ref,
    Scattered,
    Update,
    dimension,
    lowering,
    positions,
    product,
    read,
)
from frameloom.ir.node import Node, const
from frameloom.ir.ops import Op
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import conjunction

ATOMIC = {
    "sum": (DType.F16, DType.BF16, DType.F32, DType.F64, DType.I32, DType.I64),
    "max": (DType.I32, DType.I64),
    "min": (DType.I32, DType.I64),
}


def updated(call: Call, x: Ref, *updates: Update) -> Scattered:
    """`x`, updated."""
    return Scattered(read(x, call.at()), _allowed(call, updates))


def _allowed(call: Call, updates: Sequence[Update]) -> tuple[Update, ...]:
    for u in updates:
        if is_cuda(call.device) and (
            torch.are_deterministic_algorithms_enabled()
            or (u.kind != "set" and call.dtype not in ATOMIC.get(u.kind, ()))
        ):
            raise Decline
    return tuple(updates)


def update(kind: str, over: Sequence[Node], at: Sequence[Node], mask: Node, value: Expr) -> Update:
    """One for every position of `over`, which `positions` made."""
    return Update(kind, tuple(n.arg for n in over if n.op is Op.AXIS), tuple(at), mask, value)


def number(value: Number, dtype: DType) -> Expr:
    """A program's number as an element."""
    if dtype.is_int:
        if isinstance(value, float) and not math.isfinite(value):
            raise Decline
        bits = dtype.bits - (dtype.kind == "i")
        if not -(1 << bits) * (dtype.kind == "i") <= int(value) < 1 << bits:
            raise Decline
    return Expr(const(value, dtype))


# --- one index per value


@lowering("aten.scatter.src")
def scatter_src(call: Call, x: Ref, dim: int, indices: Ref, source: Ref) -> Scattered:
    return _scatter(call, x, dim, indices, source, "set")


@lowering("aten.scatter_add.default")
def scatter_add(call: Call, x: Ref, dim: int, indices: Ref, source: Ref) -> Scattered:
    return _scatter(call, x, dim, indices, source, "sum")


def _scatter(
    call: Call, x: Ref, dim: int, indices: Ref, source: Ref | Expr, kind: str
) -> Scattered:
    if x.ndim == 0 or indices.ndim != x.ndim or x.dtype is not call.dtype:
        raise Decline
    if isinstance(source, Ref) and (source.ndim != x.ndim or source.dtype is not x.dtype):
        raise Decline
    if product(indices.shape) == 0:
        return updated(call, x)
    if kind != "set" and call.dtype.is_half and not any(indices.strides[1:]):
        raise Decline  # eager may sum such rows in F32
    dim = dimension(dim, x.ndim)
    over = positions(indices.shape)
    row = data_index(indices, over)
    mask = inside(row, x.shape[dim])
    call.check(Expr(mask), "RuntimeError", out_of_bounds(dim, x.shape[dim]))
    value = read(source, over) if isinstance(source, Ref) else source
    at = [*over[:dim], row.node, *over[dim + 1 :]]
    return updated(call, x, update(kind, over, at, mask, value))


@lowering("aten.scatter.value")
def scatter_value(call: Call, x: Ref, dim: int, indices: Ref, value: Number) -> Expr | Scattered:
    if x.dtype is None or x.ndim == 0:
        raise Decline
    filled = number(value, x.dtype)
    dim = dimension(dim, x.ndim)
    line = tuple(1 if d == dim else extent for d, extent in enumerate(x.shape))
    if indices.shape != line or 0 in line:
        return _scatter(call, x, dim, indices, filled, "set")
    # One index per line along `dim`, as one_hot has it.
    at = call.at()
    place = data_index(indices, [index(0) if d == dim else p for d, p in enumerate(at)])
    mask = inside(place, x.shape[dim])
    call.check(Expr(mask), "RuntimeError", out_of_bounds(dim, x.shape[dim]))
    return where(place.eq(Expr(at[dim])), filled, read(x, at))
