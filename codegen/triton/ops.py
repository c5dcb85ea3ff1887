"""Writes the Triton expression of one operation.

Rounding equals that of eager mode on CUDA: divisions and roots are IEEE; functions are PTX
(codegen/triton/ptx.py) or come from libdevice, which eager mode uses too. The fast exponential (2 ulp for
small arguments) is used if its argument is known to be in [-1, 1], or if the result is rounded to 16 bits
immediately.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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
        op = n.op
        special = _SPECIAL.get(op)
        if special is not None:
            return special(self, n, args, of, short)
        if op in _TEMPLATES:
            return _TEMPLATES[op].format(*args)
        if of is DType.BOOL:
            op = ON_BOOLS.get(op, op)
        if op in INFIX:
            text = f"{args[0]} {INFIX[op]} {args[1]}"
            narrow = of.is_int and of.bits < 32 and op not in COMPARES
            return f"({text}).to({TYPES[of]})" if narrow else text
        if op in (Op.ROUND, Op.FLOOR, Op.CEIL, Op.TRUNC) and not of.is_float:
            return args[0]
        return f"{self.function(op, of)}({', '.join(args)})"

    def function(self, op: Op, of: DType) -> str:
        """Returns the name of the function that computes `op`."""
        if of is DType.F32 and op in FUNCTIONS:
            return self.helper(FUNCTIONS[op][0])
        return f"libdevice.{LIBDEVICE.get(op, op.value)}"

    # --- operations that need more than a function name

    def _neg(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        if of.is_float:  # Triton's own minus is 0 - x, which loses the sign of zero
            return f"{args[0]} * -1.0"
        return f"-{args[0]}" if of.bits >= 32 else f"(-{args[0]}).to({TYPES[of]})"

    def _not(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        return f"{args[0]} == 0" if of is DType.BOOL else f"~{args[0]}"

    def _sign(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        a = args[0]
        if of is DType.BOOL:
            return a
        return f"(({a} > 0).to({TYPES[of]}) - ({a} < 0).to({TYPES[of]}))"

    def _div(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        return f"tl.div_rn({args[0]}, {args[1]})" if of is DType.F32 else f"{args[0]} / {args[1]}"

    def _recip(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        return self._div(n, [full(1.0, of), args[0]], of, short)

    def _sqrt(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        return f"tl.sqrt_rn({args[0]})" if of is DType.F32 else f"libdevice.sqrt({args[0]})"

    def _abs(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        return args[0] if of is DType.BOOL or of.kind == "u" else f"tl.abs({args[0]})"

    def _extreme(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        if of is DType.BOOL:
            return f"{args[0]} {INFIX[ON_BOOLS[n.op]]} {args[1]}"
        name = "maximum" if n.op is Op.MAX else "minimum"
        nan = ", propagate_nan=tl.PropagateNan.ALL" if of.is_float else ""
        return f"tl.{name}({args[0]}, {args[1]}{nan})"

    def _exp(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        fast = of is DType.F32 and (short or in_unit(n.srcs[0]))
        return f"{'tl.exp' if fast else self.function(Op.EXP, of)}({args[0]})"

    def _cos(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        if of is DType.F32 and in_unit(n.srcs[0]):
            return f"{self.helper('_cos_unit')}({args[0]})"
        return f"libdevice.cos({args[0]})"

    def _sigmoid(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        exp = "tl.exp" if short and of is DType.F32 else self.function(Op.EXP, of)
        return self._div(n, [full(1.0, of), f"(1.0 + {exp}(-{args[0]}))"], of, short)

    def _signbit(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        if not of.is_float:
            return f"{args[0]} < 0"
        return f"{args[0]}.to(tl.int{of.bits}, bitcast=True) < 0"

    def _floordiv(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        if of.kind == "u":
            return f"{args[0]} // {args[1]}"
        return f"{self.helper('_floordiv')}({args[0]}, {args[1]})"

    def _mod(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        if of.is_float:
            return f"{self.helper('_fremainder')}({args[0]}, {args[1]})"
        if of.kind == "u":
            return f"{args[0]} % {args[1]}"
        return f"{self.helper('_mod')}({args[0]}, {args[1]})"

    def _fmod(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        return f"libdevice.fmod({args[0]}, {args[1]})" if of.is_float else f"{args[0]} % {args[1]}"

    def _logaddexp(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        return f"{self.helper('_logaddexp')}({args[0]}, {args[1]})"

    def _bitcast(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        return f"{args[0]}.to({TYPES[n.dtype]}, bitcast=True)"

    def _cast(self, n: Node, args: list[str], of: DType, short: bool) -> str:
        to, a = n.dtype, args[0]
        if to is DType.BOOL:
            return f"{a} != 0"
        if of.is_float and to.is_int and to.bits < 32:  # the same intermediate type as in PyTorch
            through = "tl.int64" if to is DType.U8 else "tl.int32"
            return f"{a}.to({through}).to({TYPES[to]})"
        return f"{a}.to({TYPES[to]})"


_TEMPLATES = {
    Op.ISNAN: "{0} != {0}", Op.ISINF: 'tl.abs({0}) == float("inf")', Op.TRUNCDIV: "{0} // {1}",
    Op.WHERE: "tl.where({0}, {1}, {2})",
}  # fmt: skip
_SPECIAL: dict[Op, Callable[..., str]] = {
    Op.NEG: Ops._neg, Op.NOT: Ops._not, Op.SIGN: Ops._sign, Op.DIV: Ops._div, Op.RECIP: Ops._recip,
    Op.SQRT: Ops._sqrt, Op.ABS: Ops._abs, Op.MAX: Ops._extreme, Op.MIN: Ops._extreme, Op.EXP: Ops._exp,
    Op.COS: Ops._cos, Op.SIGMOID: Ops._sigmoid,
    Op.SIGNBIT: Ops._signbit, Op.FLOORDIV: Ops._floordiv, Op.MOD: Ops._mod,
    Op.FMOD: Ops._fmod, Op.BITCAST: Ops._bitcast, Op.CAST: Ops._cast,
    Op.LOGADDEXP: Ops._logaddexp,
}  # fmt: skip


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
