"""Writes the C++ expression of one operation, on scalars (width 1) and on vectors.

Types: BOOL is `b8` as a scalar and an integer mask (all bits or none) as a vector. F16 and BF16 are their 16
bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from frameloom.codegen.cpp.prelude import ELEMENTS, Prelude
from frameloom.codegen.operators import INFIX, is_plain_division
from frameloom.codegen.sizes import fits_i32
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node
from frameloom.ir.numbers import single
from frameloom.ir.ops import COMPARES, ON_BOOLS, TRANSCENDENTAL, Op
from frameloom.ir.symbolic.expr import Size

HELPERS = frozenset({
    Op.MIN, Op.MAX, Op.ABS, Op.SIGN, Op.COPYSIGN, Op.SIGNBIT, Op.ISINF, Op.FLOORDIV, Op.TRUNCDIV, Op.MOD, Op.FMOD,
})  # fmt: skip
ROUNDINGS = {Op.ROUND: 0, Op.FLOOR: 1, Op.CEIL: 2, Op.TRUNC: 3}
NEAR = {Op.SIN: "sin_unit", Op.COS: "cos_unit", Op.EXP: "exp_near"}  # for arguments in [-1, 1]
UNIT = frozenset({Op.SIN, Op.COS, Op.TANH, Op.ERF, Op.SIGMOID})  # results in [-1, 1], or NaN
I32 = (-(1 << 31), (1 << 31) - 1)


class Ops:
    """Expressions; the helper functions that they call go into `prelude`."""

    def __init__(self, prelude: Prelude) -> None:
        self.prelude = prelude

    def op_text(self, n: Node, args: list[str], width: int, of: DType, to: DType) -> str:
        op = n.op
        p = self.prelude
        if op is Op.CAST:
            return self.cast_text(args[0], of, to, width)
        if op in (Op.MAX, Op.MIN) and n.srcs[1].op is Op.CONST:
            # Equal zeros give the second, as in eager mode; and a constant needs no NaN check.
            args = args[::-1]
        if op is Op.BITCAST:
            return f"as<{p.vector(to, width)}>({args[0]})"
        if op is Op.WHERE:
            return self._select(args[0], args[1], args[2], to, width)
        if op in INFIX or (of is DType.BOOL and op in ON_BOOLS):
            return self._infix(op, args, width, of)
        if op is Op.NEG:
            return f"({ELEMENTS[to]})-{args[0]}" if width == 1 else f"-{args[0]}"
        if op is Op.NOT:
            return f"!{args[0]}" if of is DType.BOOL and width == 1 else f"~{args[0]}"
        if op is Op.RECIP:
            return f"{one(to)} / {args[0]}"
        if op is Op.SQRT:
            return self._sqrt(args[0], of, width)
        if op is Op.RSQRT:
            return f"{one(to)} / {self._sqrt(args[0], of, width)}"
        if op is Op.ISNAN:
            return self._mask(f"{args[0]} != {args[0]}", of, width)
        if op in ROUNDINGS:
            if not of.is_float:
                return args[0]
            name = p.function("rint", of, max(width, 2) if width > 1 else self._wide(of))
            if width == 1:
                return f"{name}<{ROUNDINGS[op]}>({self._lift(args[0], of)})[0]"
            return f"{name}<{ROUNDINGS[op]}>({args[0]})"
        if op in (Op.SIGNBIT, Op.ISINF):
            name = p.function(op.value, of, width)
            return self._mask(f"{name}({args[0]})", of, width)
        if op in HELPERS and not (op in (Op.FMOD, Op.MOD) and of.is_float):
            return f"{p.function(op.value, of, width)}({', '.join(args)})"
        assert op in TRANSCENDENTAL or op in (Op.FMOD, Op.MOD, Op.NEXTAFTER), op
        return self._math(self._math_name(n), args, of, width)

    def _math_name(self, n: Node) -> str:
        if n.dtype is DType.F32 and n.op in NEAR and in_unit(n.srcs[0]):
            return NEAR[n.op]
        return n.op.value

    def divide_text(self, n: Node, dtype: DType) -> Callable[[str], str] | None:
        """Returns the text of a position divided by a constant, which the compiler turns into a
        multiplication; or None."""
        if not is_plain_division(n):
            return None
        sign = "/" if n.op is Op.FLOORDIV else "%"
        return lambda a: f"{a} {sign} {constant(n.srcs[1].arg, dtype)}"

    def _math(self, name: str, args: list[str], of: DType, width: int) -> str:
        if width > 1:
            return f"{self.prelude.function(name, of, width)}({', '.join(args)})"
        call = self.prelude.function(name, of, self._wide(of))
        return f"{call}({', '.join(self._lift(a, of) for a in args)})[0]"

    def _wide(self, dtype: DType) -> int:
        return self.prelude.isa.lanes(dtype.bytes)

    def _lift(self, text: str, dtype: DType) -> str:
        return f"splat<{self.prelude.vector(dtype, self._wide(dtype))}>({text})"

    def _sqrt(self, text: str, of: DType, width: int) -> str:
        if width == 1:
            return f"__builtin_sqrt{'f' if of is DType.F32 else ''}({text})"
        return f"{self.prelude.function('sqrt', of, width)}({text})"

    def _infix(self, op: Op, args: list[str], width: int, of: DType) -> str:
        a, b = args
        if of is DType.BOOL and op in ON_BOOLS:
            op = ON_BOOLS[op]
        sign = INFIX[op]
        if width == 1:
            if of.is_int and op not in COMPARES:
                # Signed overflow wraps (a compiler flag says so). Small types are converted back from int.
                return f"({ELEMENTS[of]})({a} {sign} {b})"
            logical = of is DType.BOOL and op in (Op.AND, Op.OR, Op.XOR)
            return f"({a} {sign} {b})" if logical else f"{a} {sign} {b}"
        if op in COMPARES:
            if of is DType.BOOL:
                # True is -1 in a mask, so the order is reversed.
                return f"({b} {sign} {a})"
            return self._mask(f"{a} {sign} {b}", of, width)
        return f"{a} {sign} {b}"

    def _mask(self, text: str, of: DType, width: int) -> str:
        """Returns a comparison of lanes of type `of` as BOOL."""
        if width == 1:
            return f"({text})"
        if of.bits * width == self.prelude.isa.bytes * 8:
            return f"({text})"
        return self.converted(text, self.prelude.mask(width))

    def _select(self, condition: str, a: str, b: str, of: DType, width: int) -> str:
        if width == 1:
            return f"{condition} ? {a} : {b}"
        if of is not DType.BOOL and of.bits * width != self.prelude.isa.bytes * 8:
            condition = self.converted(condition, self.prelude.vector(f"i{of.bits}", width))
        return f"{condition} ? {a} : {b}"

    def converted(self, text: str, vector: str) -> str:
        """Returns `text` with every lane converted to the element of another vector type."""
        self.prelude.function("convert", "", 0)
        return f"convert<{vector}>({text})"

    def cast_text(self, a: str, of: DType, to: DType, width: int) -> str:
        p = self.prelude
        if of is to:
            return a
        if of.is_half:
            f32 = self._half(f"from_{of.text}", a, width)
            return f32 if to is DType.F32 else self.cast_text(f32, DType.F32, to, width)
        if to.is_half:
            f32 = self.cast_text(a, of, DType.F32, width)
            return self._half(f"to_{to.text}", f32, width)
        if to is DType.BOOL:
            zero = "0" if width == 1 else f"{p.vector(of, width)}{{}}"
            return self._mask(f"{a} != {zero}", of, width)
        if width == 1:
            if of.is_float and to.is_int:
                wide = to if to.bits >= 32 else DType.I32
                p.function("whole", "", 0)
                a = f"whole<{ELEMENTS[wide]}>({a})"
                return a if wide is to else f"({ELEMENTS[to]}){a}"
            return f"({ELEMENTS[to]})({a})"
        v = p.vector(to, width)
        if of is DType.BOOL:
            if to.is_float:
                return self._select(a, f"splat<{v}>({one(to)})", f"{v}{{}}", to, width)
            return self.converted(f"-({a})", v)
        if to.is_float != of.is_float and min(of.bits, to.bits) < 32:
            a = self.converted(a, p.vector(DType.I32, width))
        return self.converted(a, v)

    def _half(self, name: str, a: str, width: int) -> str:
        p = self.prelude
        wide = width if width > 1 else self._wide(DType.F32)
        call = p.function(name, DType.F32, wide)
        if width > 1:
            return f"{call}({a})"
        element = "u16" if name.startswith("from") else "f32"
        return f"{call}(splat<{p.vector(element, wide)}>(({element})({a})))[0]"


def in_unit(n: Node) -> bool:
    """Whether the value is known to be in [-1, 1] or NaN."""
    if n.op in (Op.NEG, Op.ABS):
        return in_unit(n.srcs[0])
    return n.op in UNIT


def one(dtype: DType) -> str:
    return "1.f" if dtype is DType.F32 else "1."


def constant(value: bool | int | float, dtype: DType) -> str:
    """Returns a C++ literal; for a size, its name."""
    if isinstance(value, Size):
        if dtype is DType.I64:
            return str(value)
        if dtype is not DType.I32 or not fits_i32(value):
            raise AssertionError(f"a size as {dtype}")
        return f"(i32){value}"
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_int:
        if value == -(1 << 63):
            return "(-9223372036854775807l - 1)"
        # The literal has the exact type, because it decides which overload of a function is called.
        if dtype is DType.I64:
            return f"({value}l)" if value < 0 else f"{value}l"
        if dtype is DType.I32:
            return str(value) if value >= 0 else f"(i32)({value}l)"
        return f"({ELEMENTS[dtype]})({value}l)"
    if dtype.is_half:
        return str(half_bits(value, dtype))
    value, suffix = float(value), "f" if dtype is DType.F32 else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    if dtype is DType.F32:
        value = single(value)
        if math.isinf(value):
            return constant(value, dtype)
    text = f"{value.hex()}{suffix}"
    return f"({text})" if math.copysign(1.0, value) < 0 else text


def half_bits(value: float, dtype: DType) -> int:
    """Returns the 16 bits of a constant."""
    kind = torch.bfloat16 if dtype is DType.BF16 else torch.float16
    return int(torch.tensor(value, dtype=kind).view(torch.int16)) & 0xFFFF
