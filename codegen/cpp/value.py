"""Turns nodes into C++ statements.

A value is defined once, in the innermost open scope that binds something it depends on. So loop-invariant
values are defined before the loop. In a loop over lanes, a value that depends on the lane axis is `unroll`
vectors, any other is one scalar.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from frameloom.codegen.cpp.ops import Ops, constant
from frameloom.codegen.cpp.prelude import ELEMENTS, Prelude
from frameloom.codegen.schedule.layout import is_index, stride
from frameloom.codegen.sizes import index_fits_i32
from frameloom.ir.dtype import DType
from frameloom.ir.index import bounds, sum_of, terms_of
from frameloom.ir.node import Axis, Node
from frameloom.ir.ops import COMPARES, Op
from frameloom.ir.program import Buffer
from frameloom.ir.symbolic.compare import at_most

_TYPES = frozenset(ELEMENTS.values())


@dataclass(frozen=True, slots=True)
class Value:
    """C++ names of a node: one, or one per unrolled copy if `vector`. `dtype` is I32 for a narrowed index."""

    texts: tuple[str, ...]
    dtype: DType
    vector: bool = False


@dataclass(frozen=True, slots=True)
class Lanes:
    """The enclosing lane loop: `unroll` vectors of `width` lanes from position `variable` on. `count` lanes
    are in use: fewer than `width` at the end of a row; the name of a variable if the row's length is
    dynamic."""

    axis: Axis
    width: int
    unroll: int
    count: int | str
    variable: str

    @property
    def all_used(self) -> bool:
        return self.count == self.width

    def call(self, name: str, *args: str, of: str = "") -> str:
        """Returns the call of a helper function on the lanes in use; `of`: its template argument."""
        if isinstance(self.count, str):
            return f"{name}{of and f'<{of}>'}({', '.join((*args, self.count))})"
        return f"{name}<{of and f'{of}, '}{self.count}>({', '.join(args)})"


@dataclass(slots=True)
class Scope:
    """An open C++ block."""

    indent: int
    variables: dict[Axis, str] = field(default_factory=dict)
    head: str = ""
    lines: list[str] = field(default_factory=list)
    names: dict[object, Value] = field(default_factory=dict)
    levels: dict[Node, int] = field(default_factory=dict)


class Values(Ops):
    """The stack of scopes, and `value(node)`."""

    def __init__(self, prelude: Prelude) -> None:
        super().__init__(prelude)
        self.scopes: list[Scope] = [Scope(1)]
        self.lanes: Lanes | None = None
        self.pointers: dict[Buffer, str] = {}
        self._count = 0

    # --- scopes and names

    def fresh(self, stem: str) -> str:
        self._count += 1
        name = f"{stem}{self._count}"
        return self.fresh(stem) if name in _TYPES else name

    def line(self, text: str, level: int = -1) -> None:
        scope = self.scopes[level]
        scope.lines.append("  " * scope.indent + text)

    def open(self, head: str, variables: dict[Axis, str] | None = None) -> None:
        # The head is written on closing, so that statements hoisted out of the block come before it.
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
            value = scope.names.get(key)
            if value is not None:
                return value
        return None

    def level(self, node: Node) -> int:
        """Returns the index of the scope where `node` belongs."""
        stack = [node]
        known: dict[Node, int] = {}
        while stack:
            n = stack[-1]
            if n in known:
                stack.pop()
                continue
            level = self._known_level(n)
            if level is None:
                waiting = [s for s in n.srcs if s not in known]
                if waiting:
                    stack.extend(waiting)
                    continue
                level = max((known[s] for s in n.srcs), default=0)
                self.scopes[level].levels[n] = level
            known[n] = level
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
        """Returns the node's value; defines it now if it is not yet defined."""
        value = self.find(node)
        if value is not None:
            return value
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
        value = self.find(node)
        assert value is not None
        return value

    def _operands(self, n: Node) -> list[Node]:
        if n.op is Op.LOAD:
            return [*self._address_parts(n), *n.srcs[1:]]
        if is_index(n) and self.is_vector(n):
            along = stride(n, self.lanes.axis)
            if along is not None:
                return [along[1]]
        return list(n.srcs)

    def _address_parts(self, load: Node) -> list[Node]:
        offset = load.srcs[0]
        if not self.is_vector(offset):
            return [offset]
        along = stride(offset, self.lanes.axis)
        if along is not None:
            return [along[1]]
        return [part for part in self.gather_parts(load) if part is not None]

    def gather_parts(self, load: Node) -> tuple[Node | None, Node]:
        """Splits the offset of a gather: returns the part that all lanes share, or None if it may not be an
        offset within the buffer; and the rest."""
        buffer, offset = load.arg, load.srcs[0]
        terms, constant = terms_of(offset)
        same = sum_of({t: f for t, f in terms.items() if self.lanes.axis not in t.free})
        known = bounds(same)
        last = sum((n - 1) * s for n, s in zip(buffer.shape, buffer.strides, strict=True))
        if (
            not same.free
            or known is None
            or not at_most(0, known[0])
            or not at_most(known[1], last)
        ):
            return None, offset
        return same, sum_of({t: f for t, f in terms.items() if self.lanes.axis in t.free}, constant)

    def vector(self, node: Node, narrow: bool = False) -> Value:
        """Returns the value as vectors; a scalar is broadcast to the lanes. `narrow`: an I64 as I32."""
        assert self.lanes is not None
        value = self.value(node)
        if value.vector:
            return self.as_dtype(value, DType.I32) if narrow else value
        if narrow:
            value = Value(value.texts, DType.I32)
        key = (node, self.lanes.width, value.dtype)
        spread = self.find(key)
        if spread is None:
            level = self.level(node)
            v = self.type_of(value.dtype, self.lanes.width)
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

    def type_of(self, dtype: DType, width: int) -> str:
        """Returns the C++ type of a value with `width` lanes; the element type for 1."""
        if width > 1 and dtype is DType.BOOL:
            return self.prelude.mask(width)
        return self.prelude.vector(dtype, width)

    def _define(self, n: Node) -> None:
        level = self.level(n)
        scope = self.scopes[level]
        if self.is_vector(n):
            dtype, texts = self._vector_texts(n)
            v = self.type_of(dtype, self.lanes.width)
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
        divide = self.divide_text(n, n.dtype) if is_index(n) else None
        if divide is not None:
            return divide(args[0])
        return self.op_text(n, args, 1, n.srcs[0].dtype if n.srcs else n.dtype, n.dtype)

    # --- vectors

    def _vector_texts(self, n: Node) -> tuple[DType, list[str]]:
        lanes = self.lanes
        if n.op is Op.LOAD:
            return n.dtype, self.load_texts(n)
        if is_index(n):
            along = stride(n, lanes.axis)
            if along is not None:
                dtype = DType.I32 if index_fits_i32(n) else DType.I64
                return dtype, self._index_texts(dtype, *along)
        if n.op is Op.CONST:
            raise AssertionError("constants are scalars")
        # Positions are compared and computed in 32 bits if they fit.
        positions = n.srcs if n.op in COMPARES else (n, *n.srcs) if is_index(n) else ()
        if n.op is Op.WHERE:
            positions = (n, *n.srcs[1:])
        narrow = bool(positions) and all(
            s.dtype is DType.I64 and index_fits_i32(s) for s in positions
        )
        args = [self.vector(s, narrow and s.dtype is not DType.BOOL) for s in n.srcs]
        if not narrow and n.op is not Op.CAST:  # a narrow position is converted as it is
            args = [self.as_dtype(a, s.dtype) for a, s in zip(args, n.srcs, strict=True)]
        of = args[0].dtype
        to = DType.I32 if narrow and n.dtype is DType.I64 else n.dtype
        divide = self.divide_text(n, to) if is_index(n) else None
        return to, [
            divide(args[0].texts[u])
            if divide
            else self.op_text(n, [a.texts[u] for a in args], lanes.width, of, to)
            for u in range(lanes.unroll)
        ]

    def as_dtype(self, value: Value, dtype: DType) -> Value:
        if value.dtype is dtype:
            return value
        v = self.prelude.vector(dtype, self.lanes.width)
        return Value(tuple(self.converted(t, v) for t in value.texts), dtype, True)

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

    def load_texts(self, n: Node) -> list[str]:
        """See cpp/memory.py."""
        raise NotImplementedError
