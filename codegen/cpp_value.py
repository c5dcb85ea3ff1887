"""Nodes -> C++ statements.

A value is defined once, in the innermost open scope that binds something it depends on: what does not change in a loop
stands before it.  In a loop of lanes a value that depends on the lane axis is `unroll` vectors, any other is one scalar.
Types: BOOL is `b8` as a scalar and an integer mask (all bits or none) as a vector; F16 and BF16 are their 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from frameloom.codegen.layout import is_index, stride
from frameloom.codegen.prelude import ELEMENTS, Prelude
from frameloom.ir.dtype import DType
from frameloom.ir.index import bounds
from frameloom.ir.node import Axis, Node
from frameloom.ir.ops import COMPARES, TRANSCENDENTAL, Op
from frameloom.ir.program import Buffer

INFIX = {
    Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/", Op.AND: "&", Op.OR: "|", Op.XOR: "^", Op.SHL: "<<",
    Op.SHR: ">>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">=", Op.EQ: "==", Op.NE: "!=",
}  # fmt: skip
BOOLEAN = {Op.ADD: Op.OR, Op.MUL: Op.AND, Op.MAX: Op.OR, Op.MIN: Op.AND}
WRAPPING = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.SHL})
HELPERS = {
    Op.MIN: "min", Op.MAX: "max", Op.ABS: "abs", Op.SIGN: "sign", Op.COPYSIGN: "copysign", Op.SIGNBIT: "signbit",
    Op.ISINF: "isinf", Op.FLOORDIV: "floordiv", Op.TRUNCDIV: "truncdiv", Op.MOD: "mod", Op.FMOD: "fmod",
}  # fmt: skip
ROUNDINGS = {Op.ROUND: 0, Op.FLOOR: 1, Op.CEIL: 2, Op.TRUNC: 3}
NEAR = {Op.SIN: "sin_unit", Op.COS: "cos_unit", Op.EXP: "exp_near"}  # for arguments in [-1, 1]
UNIT = frozenset({Op.SIN, Op.COS, Op.TANH, Op.ERF, Op.SIGMOID})  # results in [-1, 1], or NaN
I32 = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class Value:
    """C++ names of a node: one, or one per unrolled copy where `vector`.  `dtype` is I32 for a narrowed index."""

    texts: tuple[str, ...]
    dtype: DType
    vector: bool = False


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lane loop around the present place: `unroll` vectors of `width` lanes from position `variable` on, of which
    `count` lanes are there (fewer than `width` at the end of a row)."""

    axis: Axis
    width: int
    unroll: int
    count: int
    variable: str


@dataclass(slots=True)
class Scope:
    """An open C++ block."""

    indent: int
    variables: dict[Axis, str] = field(default_factory=dict)
    head: str = ""
    lines: list[str] = field(default_factory=list)
    names: dict[object, Value] = field(default_factory=dict)
    levels: dict[Node, int] = field(default_factory=dict)


class Values:
    """The stack of scopes, and `value(node)`."""

    def __init__(self, prelude: Prelude) -> None:
        self.prelude = prelude
        self.scopes: list[Scope] = [Scope(1)]
        self.lanes: Lanes | None = None
        self.pointers: dict[Buffer, str] = {}
        self._count = 0

    # --- scopes and names

    def fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def line(self, text: str, level: int = -1) -> None:
        scope = self.scopes[level]
        scope.lines.append("  " * scope.indent + text)

    def open(self, head: str, variables: dict[Axis, str] | None = None) -> None:
        # The head is written on closing: what is hoisted out of the block meanwhile comes before it.
        self.scopes.append(Scope(self.scopes[-1].indent + 1, variables or {}, head))

    def close(self) -> None:
        scope = self.scopes.pop()
        self.line(f"{scope.head} {{".lstrip())
        self.scopes[-1].lines += scope.lines
        self.line("}")

    def bind(self, node: Node, value: Value) -> None:
        self.scopes[-1].names[node] = value

    def find(self, key: object) -> Value | None:
        for scope in reversed(self.scopes):
            found = scope.names.get(key)
            if found is not None:
                return found
        return None

    def level(self, node: Node) -> int:
        """Index of the scope where `node` belongs."""
        stack = [node]
        known: dict[Node, int] = {}
        while stack:
            n = stack[-1]
            if n in known:
                stack.pop()
                continue
            found = self._known_level(n)
            if found is None:
                waiting = [s for s in n.srcs if s not in known]
                if waiting:
                    stack.extend(waiting)
                    continue
                found = max((known[s] for s in n.srcs), default=0)
                self.scopes[found].levels[n] = found
            known[n] = found
            stack.pop()
        return known[node]

    def _known_level(self, n: Node) -> int | None:
        if not n.srcs and n.op is not Op.AXIS:
            return 0
        for at in range(len(self.scopes) - 1, -1, -1):
            scope = self.scopes[at]
            if n.op is Op.AXIS:
                if n.arg in scope.variables:
                    return at
            elif n in scope.names or n in scope.levels:
                return at
        assert n.op not in (Op.AXIS, Op.REDUCE), f"{n} is not known here"
        return None

    def is_vector(self, node: Node) -> bool:
        return self.lanes is not None and self.lanes.axis in node.free

    # --- values

    def value(self, node: Node) -> Value:
        """The node's value, defined now if it is not yet."""
        found = self.find(node)
        if found is not None:
            return found
        stack = [node]
        while stack:
            n = stack[-1]
            if self.find(n) is not None:
                stack.pop()
                continue
            waiting = [s for s in self._operands(n) if self.find(s) is None]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            self._define(n)
        found = self.find(node)
        assert found is not None
        return found

    def _operands(self, n: Node) -> list[Node]:
        if n.op is Op.LOAD:
            return [*self._address_parts(n.srcs[0]), *n.srcs[1:]]
        if is_index(n) and self.is_vector(n):
            found = stride(n, self.lanes.axis)
            if found is not None:
                return [found[1]]
        return list(n.srcs)

    def _address_parts(self, offset: Node) -> list[Node]:
        if not self.is_vector(offset):
            return [offset]
        found = stride(offset, self.lanes.axis)
        return [offset] if found is None else [found[1]]

    def vector(self, node: Node) -> Value:
        """The value as vectors; a scalar is spread over the lanes."""
        assert self.lanes is not None
        value = self.value(node)
        if value.vector:
            return value
        key = (node, self.lanes.width)
        spread = self.find(key)
        if spread is None:
            level = self.level(node)
            v = self.vector_type(value.dtype)
            text = value.texts[0]
            if value.dtype is DType.BOOL:
                text = f"({v[0]}{v[1 : v.index('x')]})-({text})"
            else:
                text = f"({ELEMENTS[value.dtype]})({text})"
            name = self.fresh("s")
            self.line(f"const {v} {name} = splat<{v}>({text});", level)
            spread = Value((name,), value.dtype, True)
            self.scopes[level].names[key] = spread
        return Value(spread.texts * self.lanes.unroll, spread.dtype, True)

    def vector_type(self, dtype: DType) -> str:
        width = self.lanes.width
        return (
            self.prelude.mask(width) if dtype is DType.BOOL else self.prelude.vector(dtype, width)
        )

    def _define(self, n: Node) -> None:
        level = self.level(n)
        scope = self.scopes[level]
        if self.is_vector(n):
            dtype, texts = self._vector_texts(n)
            v = self.vector_type(dtype)
            stem = self.fresh("v")
            names = []
            for u, text in enumerate(texts):
                name = f"{stem}_{u}" if len(texts) > 1 else stem
                self.line(f"const {v} {name} = {text};", level)
                names.append(name)
            scope.names[n] = Value(tuple(names), dtype, True)
            return
        text = self._scalar_text(n)
        if n.op not in (Op.CONST, Op.AXIS):
            name = self.fresh("x")
            self.line(f"const {ELEMENTS[n.dtype]} {name} = {text};", level)
            text = name
        scope.names[n] = Value((text,), n.dtype)

    # --- scalars

    def _scalar_text(self, n: Node) -> str:
        if n.op is Op.CONST:
            return constant(n.arg, n.dtype)
        if n.op is Op.AXIS:
            return next(s.variables[n.arg] for s in reversed(self.scopes) if n.arg in s.variables)
        if n.op is Op.LOAD:
            place = f"{self.pointers[n.arg]}[{self.value(n.srcs[0]).texts[0]}]"
            if len(n.srcs) == 2:
                return f"{self.value(n.srcs[1]).texts[0]} ? {place} : {ELEMENTS[n.dtype]}(0)"
            return place
        args = [self.value(s).texts[0] for s in n.srcs]
        divide = self._divide_text(n, n.dtype) if is_index(n) else None
        if divide is not None:
            return divide(args[0])
        return self._op_text(n, args, 1, n.srcs[0].dtype if n.srcs else n.dtype, n.dtype)

    # --- vectors

    def _vector_texts(self, n: Node) -> tuple[DType, list[str]]:
        lanes = self.lanes
        if n.op is Op.LOAD:
            return n.dtype, self._load_texts(n)
        if is_index(n):
            dtype = DType.I32 if fits_i32(n) else DType.I64
            found = stride(n, lanes.axis)
            if found is not None:
                return dtype, self._index_texts(dtype, *found)
        if n.op is Op.CONST:
            raise AssertionError("constants are scalars")
        args = [self.vector(s) for s in n.srcs]
        if is_index(n):
            args = [self._as_dtype(a, dtype) for a in args]
            divide = self._divide_text(n, dtype)
            return dtype, [
                divide(args[0].texts[u])
                if divide
                else self._op_text(n, [a.texts[u] for a in args], lanes.width, dtype, dtype)
                for u in range(lanes.unroll)
            ]
        of = args[0].dtype if args else n.dtype
        if n.op is Op.CAST:
            return n.dtype, [self._cast_text(a, of, n.dtype, lanes.width) for a in args[0].texts]
        if (
            n.op in COMPARES and not (args[0].dtype is args[1].dtype is DType.I32)
        ) or n.op not in COMPARES:
            args = [self._as_dtype(a, s.dtype) for a, s in zip(args, n.srcs, strict=True)]
        of = args[0].dtype
        return n.dtype, [
            self._op_text(n, [a.texts[u] for a in args], lanes.width, of, n.dtype)
            for u in range(lanes.unroll)
        ]

    def _divide_text(self, n: Node, dtype: DType) -> Callable[[str], str] | None:
        """Division of a position by a constant, which the compiler turns into a multiplication."""
        if n.op not in (Op.FLOORDIV, Op.MOD) or n.srcs[1].op is not Op.CONST or n.srcs[1].arg <= 0:
            return None
        known = bounds(n.srcs[0])
        if known is None or known[0] < 0:
            return None
        sign = "/" if n.op is Op.FLOORDIV else "%"
        return lambda a: f"{a} {sign} {constant(n.srcs[1].arg, dtype)}"

    def _as_dtype(self, value: Value, dtype: DType) -> Value:
        if value.dtype is dtype:
            return value
        v = self.prelude.vector(dtype, self.lanes.width)
        return Value(tuple(f"__builtin_convertvector({t}, {v})" for t in value.texts), dtype, True)

    def _index_texts(self, dtype: DType, factor: int, rest: Node) -> list[str]:
        lanes = self.lanes
        v = self.prelude.vector(dtype, lanes.width)
        element = ELEMENTS[dtype]
        base = self.value(rest).texts[0]
        texts = []
        for u in range(lanes.unroll):
            steps = ", ".join(str(factor * (u * lanes.width + i)) for i in range(lanes.width))
            start = f"({element})({base} + {factor} * {lanes.variable})"
            texts.append(f"splat<{v}>({start}) + ({v}){{{steps}}}")
        return texts

    def _load_texts(self, n: Node) -> list[str]:
        lanes = self.lanes
        pointer = self.pointers[n.arg]
        v = self.prelude.vector(n.dtype if n.dtype is not DType.BOOL else "u8", lanes.width)
        offset = n.srcs[0]
        found = stride(offset, lanes.axis) if self.is_vector(offset) else (0, offset)
        mask = None
        if len(n.srcs) == 2:
            mask = self.value(n.srcs[1])
        texts = []
        for u in range(lanes.unroll):
            if found is not None:
                factor, rest = found
                at = self._place(pointer, rest, factor, u)
                if mask is not None and mask.vector:
                    self.prelude.function(
                        "masked", n.dtype if n.dtype is not DType.BOOL else "u8", lanes.width
                    )
                    if factor == 1:
                        text = f"load_masked<{lanes.count}>({at}, {mask.texts[u]}, {v}{{}})"
                    else:
                        steps = ", ".join(str(factor * i) for i in range(lanes.width))
                        o = self.prelude.vector(DType.I64, lanes.width)
                        text = f"load_masked_at<{lanes.count}>({at}, ({o}){{{steps}}}, {mask.texts[u]}, {v}{{}})"
                elif factor == 1:
                    part = lanes.count < lanes.width
                    text = f"load_part<{v}, {lanes.count}>({at})" if part else f"load<{v}>({at})"
                elif factor == 0:
                    text = f"splat<{v}>(*({at}))"
                else:
                    text = f"load_strided<{v}, {lanes.count}>({at}, {factor})"
            else:
                o = self.vector(offset).texts[u]
                if mask is not None and mask.vector:
                    self.prelude.function(
                        "masked", n.dtype if n.dtype is not DType.BOOL else "u8", lanes.width
                    )
                    text = (
                        f"load_masked_at<{lanes.count}>({pointer}, {o}, {mask.texts[u]}, {v}{{}})"
                    )
                else:
                    text = f"load_at<{v}, {lanes.count}>({pointer}, {o})"
            if mask is not None and not mask.vector:
                text = f"{mask.texts[0]} ? {text} : {v}{{}}"
            if n.dtype is DType.BOOL:
                m = self.prelude.mask(lanes.width)
                text = (
                    f"-__builtin_convertvector({text}, {m})"
                    if mask is None
                    else (f"-__builtin_convertvector(({text}), {m})")
                )
            texts.append(text)
        return texts

    def _place(self, pointer: str, rest: Node, factor: int, u: int) -> str:
        lanes = self.lanes
        parts = [pointer]
        if not (rest.op is Op.CONST and rest.arg == 0):
            parts.append(self.value(rest).texts[0])
        if factor:
            parts.append(lanes.variable if factor == 1 else f"{factor} * {lanes.variable}")
            if u:
                parts.append(str(factor * u * lanes.width))
        return " + ".join(parts)

    def store(self, buffer: Buffer, offset: Node, node: Node) -> None:
        """buffer[offset] = node, in the present scope."""
        pointer = self.pointers[buffer]
        lanes = self.lanes
        if not self.is_vector(offset):
            place = self.value(offset).texts[0]
            self.line(f"{pointer}[{place}] = {self.value(node).texts[0]};")
            return
        found = stride(offset, lanes.axis)
        value = self.vector(node)
        for u in range(lanes.unroll):
            text = value.texts[u]
            if node.dtype is DType.BOOL:
                text = f"-__builtin_convertvector({text}, {self.prelude.vector('i8', lanes.width)})"
            if found is None:
                o = self.vector(offset).texts[u]
                self.line(f"store_at<{lanes.count}>({pointer}, {o}, {text});")
            elif found[0] == 1:
                at = self._place(pointer, found[1], 1, u)
                part = f"_part<{lanes.count}>" if lanes.count < lanes.width else ""
                self.line(f"store{part}({at}, {text});")
            else:
                at = self._place(pointer, found[1], found[0], u)
                self.line(f"store_strided<{lanes.count}>({at}, {found[0]}, {text});")

    # --- operations, on scalars (width 1) and vectors

    def _op_text(self, n: Node, args: list[str], width: int, of: DType, to: DType) -> str:
        op = n.op
        p = self.prelude
        if op is Op.CAST:
            return self._cast_text(args[0], of, to, width)
        if op is Op.BITCAST:
            return f"as<{p.vector(to, width)}>({args[0]})"
        if op is Op.WHERE:
            return self._select(args[0], args[1], args[2], n.dtype, width)
        if op in INFIX or (of is DType.BOOL and op in BOOLEAN):
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
            name = p.function(HELPERS[op], of, width)
            return self._mask(f"{name}({args[0]})", of, width)
        if (
            op in HELPERS
            and not (op is Op.FMOD and of.is_float)
            and not (op is Op.MOD and of.is_float)
        ):
            return f"{p.function(HELPERS[op], of, width)}({', '.join(args)})"
        assert op in TRANSCENDENTAL or op in (Op.FMOD, Op.MOD, Op.NEXTAFTER), op
        return self._math(self._math_name(n), args, of, width)

    def _math_name(self, n: Node) -> str:
        if n.dtype is DType.F32 and n.op in NEAR and in_unit(n.srcs[0]):
            return NEAR[n.op]
        return n.op.value

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
        if of is DType.BOOL and op in BOOLEAN:
            op = BOOLEAN[op]
        sign = INFIX[op]
        if width == 1:
            if op in WRAPPING and of.is_int:
                # Signed overflow wraps (the compiler is told so); small types come back from int.
                return f"({ELEMENTS[of]})({a} {sign} {b})"
            if of is DType.BOOL and op in (Op.AND, Op.OR, Op.XOR):
                return f"({a} {sign} {b})"
            return (
                f"({ELEMENTS[of]})({a} {sign} {b})"
                if op not in COMPARES and of.is_int
                else f"{a} {sign} {b}"
            )
        if op in COMPARES:
            if of is DType.BOOL:
                # True is -1 in a mask: the order is the other way round.
                return f"({b} {sign} {a})"
            return self._mask(f"{a} {sign} {b}", of, width)
        return f"{a} {sign} {b}"

    def _mask(self, text: str, of: DType, width: int) -> str:
        """A comparison of `of` lanes as BOOL."""
        if width == 1:
            return f"({text})"
        if of.bits * width == self.prelude.isa.bytes * 8:
            return f"({text})"
        return f"__builtin_convertvector({text}, {self.prelude.mask(width)})"

    def _select(self, condition: str, a: str, b: str, of: DType, width: int) -> str:
        if width == 1:
            return f"{condition} ? {a} : {b}"
        if of is not DType.BOOL and of.bits * width != self.prelude.isa.bytes * 8:
            condition = (
                f"__builtin_convertvector({condition}, {self.prelude.vector(f'i{of.bits}', width)})"
            )
        return f"{condition} ? {a} : {b}"

    def _cast_text(self, a: str, of: DType, to: DType, width: int) -> str:
        p = self.prelude
        if of is to:
            return a
        if of.is_half:
            f32 = self._half(f"from_{of.text}", a, width)
            return f32 if to is DType.F32 else self._cast_text(f32, DType.F32, to, width)
        if to.is_half:
            f32 = self._cast_text(a, of, DType.F32, width)
            return self._half(f"to_{to.text}", f32, width)
        if to is DType.BOOL:
            zero = "0" if width == 1 else f"{p.vector(of, width)}{{}}"
            return self._mask(f"{a} != {zero}", of, width)
        if width == 1:
            if of.is_float and to.is_int and to.bits < 32:
                return f"({ELEMENTS[to]})(i32)({a})"
            return f"({ELEMENTS[to]})({a})"
        v = p.vector(to, width)
        if of is DType.BOOL:
            return f"__builtin_convertvector(-({a}), {v})"
        if of.is_float and to.is_int and to.bits < 32:
            a = f"__builtin_convertvector({a}, {p.vector(DType.I32, width)})"
        return f"__builtin_convertvector({a}, {v})"

    def _half(self, name: str, a: str, width: int) -> str:
        p = self.prelude
        wide = width if width > 1 else self._wide(DType.F32)
        call = p.function(name, DType.F32, wide)
        if width > 1:
            return f"{call}({a})"
        source = p.vector("u16" if name.startswith("from") else "f32", wide)
        return f"{call}(splat<{source}>({a}))[0]"


def fits_i32(n: Node) -> bool:
    known = bounds(n)
    return known is not None and I32[0] <= known[0] and known[1] <= I32[1]


def in_unit(n: Node) -> bool:
    """Known to be in [-1, 1] or NaN."""
    if n.op in (Op.NEG, Op.ABS):
        return in_unit(n.srcs[0])
    return n.op in UNIT


def one(dtype: DType) -> str:
    return "1.f" if dtype is DType.F32 else "1."


def constant(value: bool | int | float, dtype: DType) -> str:
    """A C++ literal."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_int:
        if value == -(1 << 63):
            return "(-9223372036854775807l - 1)"
        return f"({value}l)" if value < 0 else f"{value}l" if dtype is DType.I64 else str(value)
    if dtype.is_half:
        return str(half_bits(value, dtype))
    suffix = "f" if dtype is DType.F32 else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    if dtype is DType.F32:
        value = to_f32(value)
        if math.isinf(value):
            return constant(value, dtype)
    return (
        f"{value.hex()}{suffix}"
        if value >= 0 and not is_negative(value)
        else f"({value.hex()}{suffix})"
    )


def is_negative(value: float) -> bool:
    return math.copysign(1.0, value) < 0


def to_f32(value: float) -> float:
    import ctypes

    return ctypes.c_float(value).value


def half_bits(value: float, dtype: DType) -> int:
    """The 16 bits of a constant."""
    import torch

    kind = torch.bfloat16 if dtype is DType.BF16 else torch.float16
    return int(torch.tensor(value, dtype=kind).view(torch.int16)) & 0xFFFF
