"""Writes the Triton expression of one operation.

Rounding equals that of eager mode on CUDA: divisions and roots are IEEE; functions are PTX
(codegen/triton/ptx.py) or come from libdevice, which eager mode uses too. The fast exponential (2 ulp for
small arguments) is used if its argument is known to be in [-1, 1], or if the result is rounded to 16 bits
immediately.
"""

from __future__ import annotations

import math

from frameloom.codegen.cpp.ops import in_unit
from frameloom.codegen.operators import INFIX
from frameloom.codegen.triton.ptx import FUNCTIONS, helpers
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node
from frameloom.ir.numbers import single
from frameloom.ir.ops import COMPARES, ON_BOOLS, Op

TYPES = {
    DType.BOOL: "tl.int1", DType.U8: "tl.uint8", DType.I8: "tl.int8", DType.I16: "tl.int16", DType.I32: "tl.int32",
    DType.I64: "tl.int64", DType.F16: "tl.float16", DType.BF16: "tl.bfloat16", DType.F32: "tl.float32",
    DType.F64: "tl.float64",
}  # fmt: skip
POINTERS = {
    DType.BOOL: "*i1", DType.U8: "*u8", DType.I8: "*i8", DType.I16: "*i16", DType.I32: "*i32", DType.I64: "*i64",
    DType.F16: "*fp16", DType.BF16: "*bf16", DType.F32: "*fp32", DType.F64: "*fp64",
}  # fmt: skip
# libdevice's names, where they are not the op's own.
LIBDEVICE = {Op.ROUND: "rint"}

# Functions that a kernel calls, by name; a text names others that it needs before it.
HELPERS: dict[str, str] = {
    "_max": "def _max(a, b):\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "_min": "def _min(a, b):\n    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "_add": "def _add(a, b):\n    return a + b",
    "_mul": "def _mul(a, b):\n    return a * b",
    # Source: `_log_add_exp_helper` of ATen.
    "_logaddexp": """def _logaddexp(a, b):
    low = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    high = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    both = libdevice.log1p(libdevice.exp(low - high)) + high
    return tl.where((low != high) | (tl.abs(low) < float("inf")), both, a)""",
    "_or": "def _or(a, b):\n    return a | b",
    "_and": "def _and(a, b):\n    return a & b",
    "_argmax": """def _argmax(a, i, b, j):
    # NaN is greater than all; the first of equals wins.
    better = (a > b) | ((a != a) & (b == b))
    first = better | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)""",
    "_argmin": """def _argmin(a, i, b, j):
    better = (a < b) | ((a != a) & (b == b))
    first = better | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)""",
    "_floordiv": """def _floordiv(a, b):
    q = a // b
    return q - ((q * b != a) & ((a < 0) != (b < 0)))""",
    "_mod": """def _mod(a, b):
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)""",
    "_fremainder": """def _fremainder(a, b):
    r = libdevice.fmod(a, b)
    return tl.where((r != 0) & ((b < 0) != (r < 0)), r + b, r)""",
    # Ten rounds of Philox (ir/philox.py).
    "_philox": """def _philox(seed, offset, blocks, thread):
    blocks = offset // 4 + blocks
    a, b = blocks.to(tl.uint32), (blocks >> 32).to(tl.uint32)
    c, d = thread.to(tl.uint32), tl.full((), 0, tl.uint32)
    first, second = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        # One multiplication of 32 by 32 bits each.
        one, other = a.to(tl.uint64) * 0xD2511F53, c.to(tl.uint64) * 0xCD9E8D57
        a, b = (other >> 32).to(tl.uint32) ^ b ^ first, other.to(tl.uint32)
        c, d = (one >> 32).to(tl.uint32) ^ d ^ second, one.to(tl.uint32)
        first, second = first + 0x9E3779B9, second + 0xBB67AE85
    return a, b, c, d""",
    "_uniform": """def _uniform(bits):
    return bits.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10""",
    # Taylor's series to x**12: 1 ulp in [-1, 1].
    "_cos_unit": """def _cos_unit(x):
    y = x * x
    p = tl.fma(y, 2.08767569878681e-09, -2.755731922398589e-07)
    p = tl.fma(y, p, 2.48015873015873e-05)
    p = tl.fma(y, p, -0.001388888888888889)
    p = tl.fma(y, p, 0.041666666666666664)
    p = tl.fma(y, p, -0.5)
    return tl.fma(y, p, 1.0)""",
    **helpers(),
}


class Ops:
    """Expressions of single operations; collects the helper functions that they call."""

    def __init__(self) -> None:
        self.helpers: dict[str, None] = {}

    def helper(self, name: str) -> str:
        self.helpers[name] = None
        return name

    def op_text(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        """Returns the text of `n` with operands of dtype `of`. `short`: the result is rounded to 16 bits
        immediately."""
        op, a, b = n.op, args[0], args[-1]
        match op:
            case Op.NEG if of.is_float:  # Triton's own minus is 0 - x, which loses the sign of zero
                return f"{a} * -1.0"
            case Op.NEG:
                return f"-{a}" if of.bits >= 32 else f"(-{a}).to({TYPES[of]})"
            case Op.NOT:
                return f"{a} == 0" if of is DType.BOOL else f"~{a}"
            case Op.SIGN if of is not DType.BOOL:
                return f"(({a} > 0).to({TYPES[of]}) - ({a} < 0).to({TYPES[of]}))"
            case Op.ABS if of is not DType.BOOL and of.kind != "u":
                return f"tl.abs({a})"
            case Op.SIGN | Op.ABS:
                return a
            case Op.ROUND | Op.FLOOR | Op.CEIL | Op.TRUNC if not of.is_float:
                return a
            case Op.DIV if of is DType.F32:
                return f"tl.div_rn({a}, {b})"
            case Op.RECIP:
                return self._recip(a, of)
            case Op.SQRT if of is DType.F32:
                return f"tl.sqrt_rn({a})"
            case Op.MAX | Op.MIN if of is not DType.BOOL:
                nan = ", propagate_nan=tl.PropagateNan.ALL" if of.is_float else ""
                return f"tl.{op.value}imum({a}, {b}{nan})"
            case Op.EXP if of is DType.F32 and (short or in_unit(n.srcs[0])):
                return f"tl.exp({a})"
            case Op.COS if of is DType.F32 and in_unit(n.srcs[0]):
                return f"{self.helper('_cos_unit')}({a})"
            case Op.SIGMOID:
                fast = short and of is DType.F32
                exp = "tl.exp" if fast else self.function(Op.EXP, of)
                return self._recip(f"(1.0 + {exp}(-{a}))", of)
            case Op.SIGNBIT:
                return f"{a}.to(tl.int{of.bits}, bitcast=True) < 0" if of.is_float else f"{a} < 0"
            case Op.ISNAN:
                return f"{a} != {a}"
            case Op.ISINF:
                return f'tl.abs({a}) == float("inf")'
            case Op.MOD if of.is_float:
                return f"{self.helper('_fremainder')}({a}, {b})"
            case Op.FLOORDIV | Op.MOD if of.kind != "u":
                return f"{self.helper(f'_{op.value}')}({a}, {b})"
            case Op.FLOORDIV | Op.TRUNCDIV:
                return f"{a} // {b}"
            case Op.MOD | Op.FMOD if not of.is_float:
                return f"{a} % {b}"
            case Op.LOGADDEXP:
                return f"{self.helper('_logaddexp')}({a}, {b})"
            case Op.WHERE:
                return f"tl.where({', '.join(args)})"
            case Op.BITCAST:
                return f"{a}.to({TYPES[n.dtype]}, bitcast=True)"
            case Op.CAST:
                return _cast(a, of, n.dtype)
        if of is DType.BOOL:
            op = ON_BOOLS.get(op, op)
        if op in INFIX:
            text = f"{a} {INFIX[op]} {b}"
            narrow = of.is_int and of.bits < 32 and op not in COMPARES
            return f"({text}).to({TYPES[of]})" if narrow else text
        return f"{self.function(op, of)}({', '.join(args)})"

    def _recip(self, a: str, of: DType) -> str:
        one = full(1.0, of)
        return f"tl.div_rn({one}, {a})" if of is DType.F32 else f"{one} / {a}"

    def function(self, op: Op, of: DType) -> str:
        """Returns the name of the function that computes `op`."""
        if of is DType.F32 and op in FUNCTIONS:
            return self.helper(FUNCTIONS[op][0])
        return f"libdevice.{LIBDEVICE.get(op, op.value)}"


def _cast(a: str, of: DType, to: DType) -> str:
    if to is DType.BOOL:
        return f"{a} != 0"
    if of.is_float and to.is_int and to.bits < 32:  # the same intermediate type as in PyTorch
        through = "tl.int64" if to is DType.U8 else "tl.int32"
        return f"{a}.to({through}).to({TYPES[to]})"
    return f"{a}.to({TYPES[to]})"


def literal(value: bool | int | float, dtype: DType) -> str:
    """Returns a constant as Triton reads it next to an operand of the same dtype."""
    if dtype in (DType.BOOL, DType.F64) or dtype.is_half:
        return full(value, dtype)
    if not dtype.is_float:
        return f"({value})" if value < 0 else str(value)
    value = single(value)
    if math.isnan(value) or math.isinf(value):
        text = f'float("{abs(value)}")'
        return f"(-{text})" if value < 0 else text
    return f"({value!r})" if math.copysign(1.0, value) < 0 else repr(value)


def full(value: bool | int | float, dtype: DType) -> str:
    """Returns a constant with a type."""
    if isinstance(value, bool):
        value = int(value)
    text = repr(value)
    if isinstance(value, float) and not math.isfinite(value):
        text = f'{"-" if value < 0 else ""}float("{abs(value)}")'
    if dtype.is_half:  # Triton reads only six decimals of a 16-bit constant
        return f"tl.full((), {text}, tl.float32).to({TYPES[dtype]})"
    return f"tl.full((), {text}, {TYPES[dtype]})"
