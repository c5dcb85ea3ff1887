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


@lowering(
    "aten.full.default", "aten.full_like.default", "aten.fill.Scalar", "aten.new_full.default",
    "aten.scalar_tensor.default", numbers=True, elementwise=True,
)  # fmt: skip
def full(call: Call, *arguments: Any) -> Expr:
    given = dict(zip(call.names, arguments, strict=True))
    value: Number = next(given[n] for n in ("fill_value", "value", "s") if n in given)
    if not isinstance(value, Scalar):
        return Expr(const(value, call.dtype))
    if not call.dtype.is_float and call.dtype is not DType.I64:
        raise Decline  # eager refuses numbers that do not fit
    return value


# The elements of `empty` are undefined.  Zeros are a valid choice, and a store that no step reads is dropped.
@lowering(
    "aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero.default",
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default", "aten.empty_strided.default",
    "aten.new_empty_strided.default", elementwise=True,
)  # fmt: skip
def zeros(call: Call, *arguments: Any) -> Expr:
    return Expr(const(0, call.dtype))


@lowering("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default", elementwise=True)
def ones(call: Call, *arguments: Any) -> Expr:
    return Expr(const(1, call.dtype))


@lowering("aten.arange.default", "aten.arange.start", "aten.arange.start_step", sizes=True)
def arange(call: Call, *arguments: Any) -> Expr:
    given = dict(zip(call.names, arguments, strict=True))
    start: Number = given.get("start", 0)
    step: Number = given.get("step", 1)
    (position,) = call.at()
    if isinstance(start, int | Size) and isinstance(step, int | Size):
        return Expr(index.add(index.mul(position, index.index(step)), index.index(start)))
    if not call.dtype.is_float:
        # Eager converts both to ints before it counts.
        return Expr(index.add(index.mul(position, index.index(int(step))), index.index(int(start))))
    # Eager computes float ranges in double.
    return Expr(position).cast(DType.F64) * step + start


@lowering("aten.eye.default", "aten.eye.m")
def eye(call: Call, *arguments: Any) -> Expr:
    row, column = call.at()
    return Expr(compare(Op.EQ, row, column)).cast(call.dtype)


@lowering("aten.tril.default", "aten.triu.default")
def triangle(call: Call, x: Ref, diagonal: int) -> Expr:
    op = Op.LE if "tril" in call.target else Op.GE
    if x.ndim < 2:
        raise Decline
    at = call.at()
    mask = compare(op, index.sub(at[-1], at[-2]), index.index(diagonal))
    return where(Expr(mask), read(x, at), 0)
