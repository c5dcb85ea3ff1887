"""Dynamic sizes as the program's ints, such as `x.shape[0] + 1`; and dynamic ints that are used as sizes.

A `SymbolicSize` holds a Size (ir/symbolic/expr.py); symbolic.py has its interface as a dynamic number. An
int argument becomes a Size where a size is needed (`as_size`): a slice's bound, a shape. Then the source
of its symbol is the number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.opcodes import IN_PLACE
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.numbers.symbolic import LARGEST, MAX_PROGRAM, SymbolicNumber
from frameloom.ir.symbolic.atoms import lone_symbol
from frameloom.ir.symbolic.compare import require
from frameloom.ir.symbolic.expr import Apply, Int, Size, largest, smallest

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder

ARITHMETIC: dict[Any, Callable[..., Int]] = {
    operator.add: operator.add, operator.sub: operator.sub, operator.mul: operator.mul, operator.floordiv: operator.floordiv,
    operator.mod: operator.mod, operator.neg: operator.neg, operator.pos: operator.pos, max: largest, min: smallest,
    int: operator.pos, operator.index: operator.pos, operator.pow: operator.pow, pow: operator.pow, abs: abs, operator.abs: abs,
}  # fmt: skip
DIVISIONS = (operator.floordiv, operator.mod)
OPS = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}


class SymbolicSize(SymbolicNumber):
    is_size = True

    def __init__(self, t: Tracer, size: Size) -> None:
        super().__init__(t, size.hint)
        self._size = size
        self._built: list[Value] | None = None

    @property
    def size(self) -> Int:
        return self._size.shape_env.resolved(self._size)

    @property
    def is_specialized(self) -> bool:
        return not isinstance(self.size, Size)

    def describe(self) -> str:
        return f"the size {self.size!r}"

    def specialize(self) -> int:
        value = int(self.size)
        self.hint = value
        return value

    def symbol(self) -> Any:
        return self.size

    def truth(self, t: Tracer) -> bool:
        return bool(self.size)

    def postfix(self, program: list[Any]) -> str | None:
        return postfix(self.t, self.size, program)

    def parts(self) -> list[Value]:
        return self._computed_from()[1]

    def rebuild(self, r: Rebuilder) -> None:
        size = self.size
        if not isinstance(size, Size):
            return ConstValue(size).rebuild(r)
        fn, operands = self._computed_from()
        if fn is None:
            return r.load(operands[0])
        r.call(fn, *operands)

    def _computed_from(self) -> tuple[Any, list[Value]]:
        if self._built is None:
            size = self.size
            symbol = lone_symbol(size)
            if symbol is not None:
                self.fn, self._built = symbol.source.computed_from(self.t)
            elif isinstance(size, Size):
                self.fn, parts = steps(size)
                self._built = [size_value(self.t, part) for part in parts]
            else:
                self._built = []
        return self.fn, self._built


def postfix(t: Tracer, size: Int, program: list[Any]) -> str | None:
    """Appends the steps that compute a size in a guard on numbers; returns a text for it."""
    if not isinstance(size, Size):
        program.append((size,))
        return repr(size)
    symbol = lone_symbol(size)
    if symbol is not None:
        source = symbol.source
        if symbol.unbacked:  # guards do not know its value
            return None
        if isinstance(source, NumberSource):
            return source.number.postfix(program)
        program += [source.origin, (source.dim,), (source.reader, 2)]
        return str(source.text())
    fn, parts = steps(size)
    texts = [postfix(t, part, program) for part in parts]
    program.append((fn, len(parts)))
    return (
        None
        if None in texts or len(program) > MAX_PROGRAM
        else f"{fn.__name__}({', '.join(texts)})"
    )  # type: ignore[arg-type]


def steps(size: Size) -> tuple[Any, tuple[Int, Int]]:
    """Returns a function and the two numbers from which it computes the size, which is not a single
    symbol."""
    shape_env = size.shape_env
    if len(size.terms) > 1:
        first = shape_env.make(dict(size.terms[:-1]))
        monomial, factor = size.terms[-1]
        if factor < 0:
            return operator.sub, (first, shape_env.make({monomial: -factor}))
        return operator.add, (first, shape_env.make({monomial: factor}))
    ((monomial, factor),) = size.terms
    if factor != 1:
        return operator.mul, (shape_env.make({monomial: 1}), factor)
    if len(monomial) > 1:
        return operator.mul, (
            shape_env.make({monomial[:-1]: 1}),
            shape_env.make({monomial[-1:]: 1}),
        )
    atom = monomial[0]
    assert isinstance(atom, Apply)
    return OPS[atom.op], atom.args


@dataclass(frozen=True, eq=False)
class NumberSource:
    """The source of a symbol's value: an int argument, or an int that is computed from such."""

    number: SymbolicNumber
    actual: int  # its value in the captured call
    kind = "int"
    dim = 0

    @property
    def origin(self) -> Origin | None:
        return self.number.origin

    @property
    def placeholder(self) -> Any:
        """The input of the graph for it, if it is not computed."""
        return self.number.t.recorder.numbers.node(self.number)

    def text(self) -> str:
        return "a number" if self.origin is None else self.origin.path()

    def read(self) -> tuple[Any, tuple[Any, ...]]:
        """Returns the call that reads it in a graph."""
        return operator.index, (self.number.t.recorder.numbers.node(self.number),)

    def computed_from(self, t: Tracer) -> tuple[Any, list[Value]]:
        return None, [self.number]


def as_size(number: SymbolicNumber) -> Int | None:
    """Returns a dynamic int as a size; None for other numbers, and for those that depend on tensor data."""
    if number.is_specialized:
        return number.hint if number.type() is int else None
    if number.sized is None:
        if number.type() is not int:
            return None
        if (taken := number.taken) is not None:
            return size_of(taken.size(number.t))
        small_apart = number.t.session.dynamic_policy.small_apart and number.hint in (0, 1)
        if small_apart or abs(number.hint) >= LARGEST:
            return number.specialize()
        meaning = ARITHMETIC.get(number.fn)
        operands = [size_of(operand) for operand in number.operands]
        if (
            meaning is not None
            and all(n is not None for n in operands)
            and may_apply(number.fn, operands)
        ):
            number.sized = meaning(*operands)
        elif _is_held(number):
            return None
        else:
            number.sized = _symbol(number)
    return number.t.recorder.shape_env.resolved(number.sized)


def _is_held(number: ConstValue) -> bool:
    """Whether it is computed from tensor data."""
    if not isinstance(number, SymbolicNumber) or number.sized is not None:
        return False
    return (
        number.element is not None or number.site is not None or any(map(_is_held, number.operands))
    )


def _symbol(number: SymbolicNumber) -> Size:
    """Returns a new symbol. A guard checks its sign, since negative ints count from the end."""
    t, actual = number.t, int(number.hint)
    hint = t.session.dynamic_policy.size_hint(t.roots.function.__code__, number.origin, actual)
    source = NumberSource(number, actual)
    size = t.recorder.shape_env.symbol(hint, source, -math.inf)
    require((size >= 0) is (actual >= 0), "a size to think of has another sign")
    return size


def size_value(t: Tracer, size: Int) -> ConstValue:
    return SymbolicSize(t, size) if isinstance(size, Size) else ConstValue(int(size))


def size_of(value: Value) -> Int | None:
    """Returns the number of an int, None for anything else."""
    if isinstance(value, SymbolicSize):
        return value.size
    if isinstance(value, SymbolicNumber):
        return as_size(value)
    if not isinstance(value, ConstValue):
        return None
    return value.real if value.type() is int else None


def computed_size(t: Tracer, fn: Callable[..., Any], args: Sequence[Value]) -> Value | None:
    """Returns `fn(*args)` for ints, at least one of them a dynamic size; None if it is not size
    arithmetic."""
    fn = IN_PLACE[fn][1] if fn in IN_PLACE else fn
    if not any(isinstance(a, SymbolicSize) for a in args):
        return None
    sizes = [size_of(a) for a in args]
    if not sizes or any(n is None for n in sizes) or not any(isinstance(n, Size) for n in sizes):
        return None
    meaning = ARITHMETIC.get(fn)
    if meaning is None or not may_apply(fn, sizes):
        return None
    return size_value(t, meaning(*sizes))


def may_apply(fn: Callable[..., Any], sizes: Sequence[Any]) -> bool:
    """Whether the result is an int that the algebra can express."""
    if fn in DIVISIONS:
        return bool(sizes[1] > 0)
    if fn in (operator.pow, pow):
        return len(sizes) == 2 and type(sizes[-1]) is int and sizes[-1] >= 0
    return True
