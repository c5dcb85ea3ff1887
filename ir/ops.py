"""The ops of the loop IR, and sets of ops with common properties.

Scalar ops work on one element; a loop nest around them comes from the axes that their offsets mention
(node.py).
"""

from __future__ import annotations

import enum


class Op(enum.Enum):
    # leaves
    CONST = "const"  # arg: Python bool/int/float that fits the dtype
    AXIS = "axis"  # arg: Axis; its current position, an I64
    LOAD = "load"  # arg: Buffer; srcs: (offset,) or (offset, mask): 0 and no read where the mask is false
    # random numbers
    RANDOM = "random"  # arg: philox.Stream; srcs: (seed, offset, position), all I64
    # reductions
    REDUCE = "reduce"  # arg: Reduce; srcs: (value,)
    # casts
    CAST = "cast"  # to node.dtype, as `Tensor.to` does
    BITCAST = "bitcast"  # same bits, same width
    # unary arithmetic
    NEG = "neg"
    ABS = "abs"
    SIGN = "sign"
    RECIP = "recip"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    ROUND = "round"  # half to even
    NOT = "not"  # logical on bool, bitwise on integers
    ISNAN = "isnan"
    ISINF = "isinf"
    SIGNBIT = "signbit"
    # transcendentals
    EXP = "exp"
    EXP2 = "exp2"
    EXPM1 = "expm1"
    LOG = "log"
    LOG2 = "log2"
    LOG10 = "log10"
    LOG1P = "log1p"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    ERFC = "erfc"
    SIGMOID = "sigmoid"
    LGAMMA = "lgamma"
    # binary arithmetic: both sources and the result have one dtype
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"  # floats only
    FLOORDIV = "floordiv"  # integers, rounds to minus infinity; the divisor is never 0
    TRUNCDIV = "truncdiv"  # integers, rounds to zero; the divisor is never 0
    MOD = "mod"  # sign of the divisor (Python, torch.remainder)
    FMOD = "fmod"  # sign of the dividend (C, torch.fmod)
    POW = "pow"
    MIN = "min"  # NaN if either is NaN
    MAX = "max"
    ATAN2 = "atan2"
    LOGADDEXP = "logaddexp"  # log(exp(a) + exp(b))
    COPYSIGN = "copysign"
    NEXTAFTER = "nextafter"
    AND = "and"  # bool or integers
    OR = "or"
    XOR = "xor"
    SHL = "shl"
    SHR = "shr"  # arithmetic on signed
    # comparisons: sources of one dtype, result BOOL
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    EQ = "eq"
    NE = "ne"
    # ternary
    WHERE = "where"  # (bool, a, b)

    __hash__ = object.__hash__  # Enum's own is written in Python

    def __repr__(self) -> str:
        return self.value


LEAVES = frozenset({Op.CONST, Op.AXIS})
COMPARES = frozenset({Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE})
PREDICATES = frozenset({Op.ISNAN, Op.ISINF, Op.SIGNBIT})  # unary, result BOOL
TRANSCENDENTAL = frozenset({
    Op.EXP, Op.EXP2, Op.EXPM1, Op.LOG, Op.LOG2, Op.LOG10, Op.LOG1P, Op.SIN, Op.COS, Op.TAN, Op.ASIN, Op.ACOS,
    Op.ATAN, Op.SINH, Op.COSH, Op.TANH, Op.ASINH, Op.ACOSH, Op.ATANH, Op.ERF, Op.ERFC, Op.SIGMOID, Op.LGAMMA,
    Op.POW, Op.ATAN2, Op.LOGADDEXP,
})  # fmt: skip
EXPENSIVE = TRANSCENDENTAL | {Op.RANDOM}  # not computed twice if that can be avoided
UNARY = frozenset({
    Op.NEG, Op.ABS, Op.SIGN, Op.RECIP, Op.SQRT, Op.RSQRT, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND, Op.NOT,
}) | PREDICATES | (TRANSCENDENTAL - {Op.POW, Op.ATAN2, Op.LOGADDEXP})  # fmt: skip
BINARY = frozenset({
    Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.FLOORDIV, Op.TRUNCDIV, Op.MOD, Op.FMOD, Op.POW, Op.MIN, Op.MAX, Op.ATAN2,
    Op.LOGADDEXP, Op.COPYSIGN, Op.NEXTAFTER, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR,
}) | COMPARES  # fmt: skip
COMMUTATIVE = frozenset({Op.ADD, Op.MUL, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.EQ, Op.NE})
ON_BOOLS = {Op.ADD: Op.OR, Op.MUL: Op.AND, Op.MAX: Op.OR, Op.MIN: Op.AND}
FLOAT_ONLY = TRANSCENDENTAL | {Op.DIV, Op.RECIP, Op.SQRT, Op.RSQRT, Op.COPYSIGN, Op.NEXTAFTER}
