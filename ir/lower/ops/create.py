"""Tensors made from numbers: full, zeros, arange, eye, tril and triu."""

from __future__ import annotations

from typing import Any

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr, Number, where
from frameloom.ir.lower.numbers import Scalar
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, read
from frameloom.ir.node import const
from frameloom.ir.ops import Op
from frameloom.ir.substitute import compare
from frameloom.ir.symbolic.expr import Size


def _fill(call: Call, value: Number) -> Expr:
    if isinstance(value, Scalar):
        if not call.dtype.is_float and call.dtype is not DType.I64:
            raise Decline  # eager refuses numbers that do not fit
        return value
    return Expr(const(value, call.dtype))


@lowering("aten.full.default", numbers=True, elementwise=True)
def full(call: Call, size: Any, value: Number, *options: Any) -> Expr:
    return _fill(call, value)


@lowering("aten.full_like.default", "aten.fill.Scalar", numbers=True, elementwise=True)
def full_like(call: Call, x: Ref, value: Number, *options: Any) -> Expr:
    return _fill(call, value)


@lowering("aten.new_full.default", numbers=True, elementwise=True)
def new_full(call: Call, x: Ref, size: Any, value: Number, *options: Any) -> Expr:
    return _fill(call, value)


@lowering("aten.fill.Tensor", elementwise=True)
def fill_tensor(call: Call, x: Ref, value: Ref) -> Expr:
    return read(value, call.at())


@lowering("aten.scalar_tensor.default", numbers=True, elementwise=True)
def scalar_tensor(call: Call, value: Number, *options: Any) -> Expr:
    return _fill(call, value)


# The elements of `empty` are undefined.  Zeros are a valid choice, and a store that no step reads is dropped.
@lowering(
    "aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero.default",
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default", "aten.empty_strided.default",
    "aten.new_empty_strided.default", elementwise=True,
)  # fmt: skip
def zeros(call: Call, *arguments: Any) -> Expr:
    return _fill(call, 0)


@lowering("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default", elementwise=True)
def ones(call: Call, *arguments: Any) -> Expr:
    return _fill(call, 1)


@lowering("aten.arange.default", sizes=True)
def arange(call: Call, end: Number, *options: Any) -> Expr:
    return _arange(call, 0, 1)


@lowering("aten.arange.start", sizes=True)
def arange_start(call: Call, start: Number, end: Number, *options: Any) -> Expr:
    return _arange(call, start, 1)


@lowering("aten.arange.start_step", sizes=True)
def arange_step(call: Call, start: Number, end: Number, step: Number, *options: Any) -> Expr:
    return _arange(call, start, step)


def _arange(call: Call, start: Number, step: Number) -> Expr:
    (position,) = call.at()
    if isinstance(start, int | Size) and isinstance(step, int | Size):
        return Expr(index.add(index.mul(position, index.index(step)), index.index(start)))
    if not call.dtype.is_float:
        # Eager converts both to ints before it counts.
        return Expr(index.add(index.mul(position, index.index(int(step))), index.index(int(start))))
    # Eager computes float ranges in double.
    return Expr(position).cast(DType.F64) * step + start


@lowering("aten.eye.default")
def eye(call: Call, *arguments: Any) -> Expr:
    row, column = call.at()
    return Expr(compare(Op.EQ, row, column)).cast(call.dtype)


@lowering("aten.eye.m")
def eye_m(call: Call, *arguments: Any) -> Expr:
    return eye(call)


@lowering("aten.tril.default")
def tril(call: Call, x: Ref, diagonal: int) -> Expr:
    return _triangle(call, x, Op.LE, diagonal)


@lowering("aten.triu.default")
def triu(call: Call, x: Ref, diagonal: int) -> Expr:
    return _triangle(call, x, Op.GE, diagonal)


def _triangle(call: Call, x: Ref, op: Op, diagonal: int) -> Expr:
    if x.ndim < 2:
        raise Decline
    at = call.at()
    mask = compare(op, index.sub(at[-1], at[-2]), index.index(diagonal))
    return where(Expr(mask), read(x, at), 0)
