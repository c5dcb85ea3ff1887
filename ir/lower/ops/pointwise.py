"""Unary and binary math, comparisons, bitwise ops, where and casts: one table row or one formula per op."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import (
    Expr,
    Number,
    absolute,
    exp,
    exp2,
    floor,
    function,
    isinf,
    isnan,
    log,
    log1p,
    maximum,
    minimum,
    operator,
    reciprocal,
    rsqrt,
    sign,
    sqrt,
    trunc,
    where,
)
from frameloom.ir.lower.graph_passes.constants import computing
from frameloom.ir.lower.promote import common_dtype, operand, pointwise, round_number
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, read
from frameloom.ir.ops import Op
from frameloom.ir.program import is_cuda
from frameloom.ir.symbolic.compare import surely_positive
from frameloom.ir.symbolic.expr import Size

# --- unary

UNARY_FLOAT = {
    "sqrt": Op.SQRT, "rsqrt": Op.RSQRT, "reciprocal": Op.RECIP, "exp": Op.EXP, "exp2": Op.EXP2, "expm1": Op.EXPM1,
    "log": Op.LOG, "log2": Op.LOG2, "log10": Op.LOG10, "log1p": Op.LOG1P, "sin": Op.SIN, "cos": Op.COS,
    "tan": Op.TAN, "asin": Op.ASIN, "acos": Op.ACOS, "atan": Op.ATAN, "sinh": Op.SINH, "cosh": Op.COSH,
    "tanh": Op.TANH, "asinh": Op.ASINH, "acosh": Op.ACOSH, "atanh": Op.ATANH, "erf": Op.ERF, "erfc": Op.ERFC,
    "sigmoid": Op.SIGMOID, "lgamma": Op.LGAMMA,
}  # fmt: skip
UNARY_ANY = {"neg": Op.NEG, "bitwise_not": Op.NOT}
ROUNDING = {"floor": Op.FLOOR, "ceil": Op.CEIL, "trunc": Op.TRUNC, "round": Op.ROUND}


def _rounding(op: Op) -> Callable[[Expr], Expr]:
    return lambda x: x.unary(op) if x.dtype.is_float else x


for _name, _op in {**UNARY_FLOAT, **UNARY_ANY}.items():
    pointwise(f"aten.{_name}.default")(function(_op))
for _name, _op in ROUNDING.items():
    pointwise(f"aten.{_name}.default")(_rounding(_op))


@pointwise("aten.abs.default")
def abs_(x: Expr) -> Expr:
    return absolute(x) if x.dtype.kind in "if" else x


@pointwise("aten.sign.default", "aten.sgn.default")
def sign_(x: Expr) -> Expr:
    if x.dtype.kind in "bu":
        return x.ne(0).cast(x.dtype)
    return sign(x)


@pointwise("aten.signbit.default")
def signbit(x: Expr) -> Expr:
    return x.unary(Op.SIGNBIT) if x.dtype.is_float else x < 0


def _if_float(test: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    return lambda x: test(x) if x.dtype.is_float else x.ne(x)


for _name, _test in {
    "isnan": isnan,
    "isinf": isinf,
    "isposinf": lambda x: x.eq(math.inf),
    "isneginf": lambda x: x.eq(-math.inf),
}.items():
    pointwise(f"aten.{_name}.default")(_if_float(_test))


@pointwise("aten.frac.default")
def frac(x: Expr) -> Expr:
    return x - trunc(x)


@pointwise("aten.logical_not.default")
def logical_not(x: Expr) -> Expr:
    return ~x.cast(DType.BOOL)


@lowering("aten.nan_to_num.default", elementwise=True)
def nan_to_num(
    call: Call, x: Ref, nan: float | None, posinf: float | None, neginf: float | None
) -> Expr:
    v = read(x, call.at())
    if not v.dtype.is_float:
        return v
    info = torch.finfo(v.dtype.to_torch())
    v = v.wide()
    high = info.max if posinf is None else posinf
    low = info.min if neginf is None else neginf
    value = 0.0 if nan is None else nan  # -0.0 keeps its sign
    return where(isnan(v), value, where(v.eq(math.inf), high, where(v.eq(-math.inf), low, v)))


@lowering("aten.logit.default")
def logit(call: Call, x: Ref, eps: float | None) -> Expr:
    if call.dtype.is_half:
        raise Decline  # eager rounds in between
    v = operand(x, call, call.dtype)
    if eps is not None:
        v = where(v < eps, eps, where(v > 1 - eps, 1 - eps, v))
    return log(v / (1 - v))


# --- arithmetic


def _scaled(other: Expr, alpha: Number) -> Expr:
    return other if alpha == 1 else other * alpha


@pointwise("aten.add.Tensor", "aten.add.Scalar", exact_on_gpu=True)
def add(a: Expr, b: Expr, alpha: Number) -> Expr:
    return a + _scaled(b, alpha)


@pointwise("aten.sub.Tensor", "aten.sub.Scalar", exact_on_gpu=True)
def sub(a: Expr, b: Expr, alpha: Number) -> Expr:
    return a - _scaled(b, alpha)


@pointwise("aten.rsub.Tensor", "aten.rsub.Scalar", exact_on_gpu=True)
def rsub(a: Expr, b: Expr, alpha: Number) -> Expr:
    return b - _scaled(a, alpha)


@pointwise("aten.mul.Tensor", "aten.mul.Scalar", exact=True)
def mul(a: Expr, b: Expr) -> Expr:
    return a * b


@pointwise("aten.div.Tensor", "aten.div.Scalar", exact=True)
def div(a: Expr, b: Expr) -> Expr:
    return a / b


@pointwise("aten.div.Tensor_mode", "aten.div.Scalar_mode", halves=False)
def div_mode(a: Expr, b: Expr, rounding_mode: str | None) -> Expr:
    if rounding_mode is None:
        return a / b
    if rounding_mode == "floor":
        return floor_divide(a, b)
    return trunc(a / b) if a.dtype.is_float else _divide_integers(Op.TRUNCDIV, a, b)


@pointwise("aten.floor_divide.default", "aten.floor_divide.Scalar", halves=False)
def floor_divide(a: Expr, b: Expr) -> Expr:
    return _floor_divide_floats(a, b) if a.dtype.is_float else _divide_integers(Op.FLOORDIV, a, b)


def _divide_integers(op: Op, a: Expr, b: Expr) -> Expr:
    # Division by zero raises in eager, so only a known divisor is lowered.
    if b.node.op is not Op.CONST or b.node.arg == 0 or a.dtype is DType.BOOL:
        raise Decline
    if isinstance(b.node.arg, Size) and not surely_positive(b.node.arg):
        raise Decline
    if b.node.arg == -1:
        return -a if op in (Op.FLOORDIV, Op.TRUNCDIV) else a - a
    return a.binary(op, b)


def _floor_divide_floats(a: Expr, b: Expr) -> Expr:
    # The same as Python's float.__floordiv__: exact where a / b would round up to a whole number.
    remainder = a.binary(Op.FMOD, b)
    quotient = (a - remainder) / b
    quotient = where(remainder.ne(0) & ((b < 0) ^ (remainder < 0)), quotient - 1, quotient)
    whole = floor(quotient)
    whole = where(quotient - whole > 0.5, whole + 1, whole)
    whole = where(quotient.ne(0), whole, a.constant(0).binary(Op.COPYSIGN, a / b))
    return where(b.eq(0), a / b, whole)


@pointwise("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(a: Expr, b: Expr) -> Expr:
    return a.binary(Op.MOD, b) if a.dtype.is_float else _divide_integers(Op.MOD, a, b)


@pointwise("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(a: Expr, b: Expr) -> Expr:
    return a.binary(Op.FMOD, b) if a.dtype.is_float else _divide_integers(Op.FMOD, a, b)


@pointwise("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def pow_(a: Expr, b: Expr) -> Expr:
    if not a.dtype.is_float:
        raise Decline
    return a.binary(Op.POW, b)


@lowering("aten.pow.Tensor_Scalar", elementwise=True)
def pow_scalar(call: Call, x: Ref, exponent: Number) -> Expr:
    """Lowers a power as eager does: small whole exponents multiply (16-bit floats are rounded every time),
    roots are roots."""
    common = common_dtype([x, exponent])
    a = operand(x, call, common)

    def rounded(value: Expr) -> Expr:
        return value.cast(common).wide()

    if exponent == 1:
        return a
    if exponent == 2:
        return a * a
    if common is DType.F16 and not is_cuda(call.device):  # eager has no other formulas there
        return a * a * a if exponent == 3 else a.binary(Op.POW, round_number(exponent, common))
    if exponent == 3:
        return rounded(a * a) * a
    if not a.dtype.is_float:
        raise Decline
    if exponent == 0:
        return a.constant(1)
    if exponent == 0.5:
        return sqrt(a)
    if exponent == -0.5:
        return rsqrt(a)
    if exponent == -1:
        return reciprocal(a)
    if exponent == -2:
        return reciprocal(rounded(a * a))
    return a.binary(Op.POW, round_number(exponent, common))


BINARY = {
    "maximum.default": Op.MAX, "minimum.default": Op.MIN, "atan2.default": Op.ATAN2,
    "copysign.Tensor": Op.COPYSIGN, "copysign.Scalar": Op.COPYSIGN,
}  # fmt: skip
COMPARE = {"eq": Op.EQ, "ne": Op.NE, "lt": Op.LT, "le": Op.LE, "gt": Op.GT, "ge": Op.GE}
BITWISE = {"bitwise_and": Op.AND, "bitwise_or": Op.OR, "bitwise_xor": Op.XOR}
LOGICAL = {"logical_and": Op.AND, "logical_or": Op.OR, "logical_xor": Op.XOR}


for _name, _op in BINARY.items():
    pointwise(f"aten.{_name}")(operator(_op))
for _name, _op in COMPARE.items():
    pointwise(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(operator(_op))
for _name, _op in BITWISE.items():
    pointwise(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", f"aten.{_name}.Scalar_Tensor")(
        operator(_op)
    )


pointwise("aten.nextafter.default", halves=False)(operator(Op.NEXTAFTER))


@lowering("aten.logical_and.default", "aten.logical_or.default", "aten.logical_xor.default")
def logical(call: Call, a: Ref, b: Ref) -> Expr:
    # Each side is converted to a truth value by itself: nothing is promoted.
    op = LOGICAL[call.target.split(".")[1]]
    return read(a, call.at()).cast(DType.BOOL).binary(op, read(b, call.at()).cast(DType.BOOL))


@pointwise(
    "aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar", "aten.__lshift__.Scalar",
    "aten.__lshift__.Tensor",
)  # fmt: skip
def shift_left(a: Expr, b: Expr) -> Expr:
    return _shift(Op.SHL, a, b)


@pointwise(
    "aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar", "aten.__rshift__.Scalar",
    "aten.__rshift__.Tensor",
)  # fmt: skip
def shift_right(a: Expr, b: Expr) -> Expr:
    return _shift(Op.SHR, a, b)


def _shift(op: Op, a: Expr, b: Expr) -> Expr:
    if b.node.op is not Op.CONST or not 0 <= b.node.arg < a.dtype.bits or not a.dtype.is_int:
        raise Decline
    return a.binary(op, b)


@pointwise("aten.fmax.default")
def fmax(a: Expr, b: Expr) -> Expr:
    if not a.dtype.is_float:
        return maximum(a, b)
    return where(isnan(a) | (a < b), b, a)


@pointwise("aten.fmin.default")
def fmin(a: Expr, b: Expr) -> Expr:
    if not a.dtype.is_float:
        return minimum(a, b)
    return where(isnan(a) | (b < a), b, a)


@pointwise("aten.logaddexp.default")
def logaddexp(a: Expr, b: Expr) -> Expr:
    top = maximum(a, b)
    return where(isinf(a) & a.eq(b), a, top + log1p(exp(-absolute(a - b))))


@pointwise("aten.logaddexp2.default")
def logaddexp2(a: Expr, b: Expr) -> Expr:
    top = maximum(a, b)
    return where(isinf(a) & a.eq(b), a, top + log1p(exp2(-absolute(a - b))) * (1 / math.log(2)))


@lowering("aten.ldexp.Tensor", elementwise=True)
def ldexp(call: Call, a: Ref, b: Ref) -> Expr:
    """Lowers ldexp; the power of two is stored in the dtype of the exponent before the multiplication."""
    if b.dtype is None or not b.dtype.is_float:
        raise Decline  # no power is computed: what it would overflow in is moved by
    power = exp2(operand(b, call, b.dtype))
    if b.dtype.is_half:
        power = power.cast(b.dtype)
    factor = operand(a, call, call.dtype)
    return factor * power.cast(factor.dtype)


@pointwise("aten.deg2rad.default")
def deg2rad(x: Expr) -> Expr:
    return x * (math.pi / 180)


@pointwise("aten.rad2deg.default")
def rad2deg(x: Expr) -> Expr:
    return x * (180 / math.pi)


@pointwise("aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self")
def xlogy(a: Expr, b: Expr) -> Expr:
    return where(isnan(b), math.nan, where(a.eq(0), 0.0, a * log(b)))


@pointwise("aten.heaviside.default")
def heaviside(x: Expr, values: Expr) -> Expr:
    return where(x.eq(0), values, (x > 0).cast(x.dtype))


# --- ternary


@pointwise("aten.clamp.Tensor")
def clamp_tensor(x: Expr, low: Expr | None, high: Expr | None) -> Expr:
    if low is not None:
        x = maximum(x, low)
    return x if high is None else minimum(x, high)


@pointwise("aten.clamp.default")
def clamp(x: Expr, low: Expr | None, high: Expr | None) -> Expr:
    result = clamp_tensor(x, low, high)
    lone = high if low is None else low if high is None else None
    if lone is None or not lone.dtype.is_float or not _nan_is_no_limit():
        return result
    return where(isnan(lone), x, result)


@cache
def _nan_is_no_limit() -> bool:
    """Whether eager ignores a single limit that is NaN, as 2.11 does; 2.13 returns NaN."""
    with computing():
        return not bool(torch.zeros(1, device="cpu").clamp(min=math.nan).isnan())


@pointwise("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(x: Expr, low: Expr) -> Expr:
    return maximum(x, low)


@pointwise("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(x: Expr, high: Expr) -> Expr:
    return minimum(x, high)


@pointwise("aten.lerp.Scalar")
def lerp_scalar(a: Expr, b: Expr, weight: Number) -> Expr:
    if isinstance(weight, Expr):  # known only at run time
        w = a.constant(weight)
        return where(absolute(weight) < 0.5, a + w * (b - a), b - (b - a) * (1 - w))
    return a + weight * (b - a) if abs(weight) < 0.5 else b - (b - a) * (1 - a.constant(weight))


@pointwise("aten.lerp.Tensor")
def lerp(a: Expr, b: Expr, weight: Expr) -> Expr:
    return where(absolute(weight) < 0.5, a + weight * (b - a), b - (b - a) * (1 - weight))


@pointwise("aten.addcmul.default", by_device=True)
def addcmul(x: Expr, a: Expr, b: Expr, value: Number, on_gpu: bool) -> Expr:
    if value == 1:
        return x + a * b
    return x + (a.constant(value) * (a * b) if on_gpu else a.constant(value) * a * b)


@pointwise("aten.addcdiv.default", by_device=True)
def addcdiv(x: Expr, a: Expr, b: Expr, value: Number, on_gpu: bool) -> Expr:
    if value == 1:
        return x + a / b
    return x + (a.constant(value) * (a / b) if on_gpu else a.constant(value) * a / b)


@lowering("aten.where.self", numbers=True, elementwise=True)
def where_self(call: Call, condition: Ref, a: Ref | Number, b: Ref | Number) -> Expr:
    common = common_dtype([a, b])
    test = read(condition, call.at()).cast(DType.BOOL)
    return where(test, operand(a, call, common), operand(b, call, common))


@lowering("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", numbers=True, elementwise=True)
def masked_fill(call: Call, x: Ref, mask: Ref, value: Ref | Number) -> Expr:
    v = read(x, call.at())
    fill: Any = (
        read(value, call.at()).cast(v.dtype) if isinstance(value, Ref) else v.constant(value)
    )
    return where(read(mask, call.at()).cast(DType.BOOL), fill, v)


# --- conversion


@lowering(
    "aten._to_copy.default", "aten.clone.default", "aten.lift_fresh_copy.default", elementwise=True
)
def converted(call: Call, x: Ref, *options: Any) -> Expr:
    return read(x, call.at())


@lowering("aten.copy.default", "aten.fill.Tensor", elementwise=True)
def copy(call: Call, x: Ref, source: Ref, *options: Any) -> Expr:
    return read(source, call.at())
