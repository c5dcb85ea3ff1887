"""Sizes that vary, as the program's ints: `x.shape[0]`, and what is computed from such.

A `SymbolicSize` holds a Size (ir/size.py); see symbolic.py for what it can do as a number that varies.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.symbolic import SymbolicNumber
from frameloom.ir.size import Apply, Int, Size, Symbol, largest, smallest

if TYPE_CHECKING:
    from frameloom.capture.rebuild import Rebuilder
    from frameloom.capture.tracer import Tracer

ARITHMETIC: dict[Any, Callable[..., Int]] = {
    operator.add: operator.add, operator.sub: operator.sub, operator.mul: operator.mul, operator.floordiv: operator.floordiv,
    operator.mod: operator.mod, operator.neg: operator.neg, operator.pos: operator.pos, max: largest, min: smallest,
    int: operator.pos, operator.index: operator.pos, operator.pow: operator.pow, pow: operator.pow, abs: abs, operator.abs: abs,
}  # fmt: skip
COMPARED = {operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne}
DIVISIONS = (operator.floordiv, operator.mod)
OPS = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}


class SymbolicSize(SymbolicNumber):
    is_size = True

    def __init__(self, t: Tracer, size: Size) -> None:
        super().__init__(t, size.hint)
        self._size = size
        self._built: list[ConstValue] | None = None

    @property
    def size(self) -> Int:
        return self._size.facts.resolved(self._size)

    @property
    def settled(self) -> bool:  # type: ignore[override]
        return not isinstance(self.size, Size)

    @settled.setter
    def settled(self, value: bool) -> None:
        pass

    def describe(self) -> str:
        return f"the size {self.size!r}"

    def settle(self) -> int:
        found = int(self.size)
        self.hint = found
        return found

    def symbol(self) -> Any:
        return self.size

    def truth(self, t: Tracer) -> bool:
        return bool(self.size)

    def parts(self) -> list[Value]:
        return list(self._computed_from()[1])

    def rebuild(self, r: Rebuilder) -> None:
        size = self.size
        if not isinstance(size, Size):
            return ConstValue(size).rebuild(r)
        symbol = lone_symbol(size)
        if symbol is not None:
            return symbol.source.rebuild(r)
        fn, operands = self._computed_from()
        r.code.start_call(fn)
        r.load_all(operands)
        r.code.call(len(operands))

    def _computed_from(self) -> tuple[Any, list[ConstValue]]:
        if self._built is None:
            size = self.size
            fn, parts = (
                steps(size) if isinstance(size, Size) and lone_symbol(size) is None else (None, [])
            )
            self.fn = fn
            self._built = [size_value(self.t, part) for part in parts]
        return self.fn, self._built


def lone_symbol(size: Size) -> Symbol | None:
    """The symbol that it is."""
    if len(size.terms) != 1:
        return None
    ((monomial, factor),) = size.terms
    one = len(monomial) == 1 and factor == 1 and isinstance(monomial[0], Symbol)
    return monomial[0] if one else None  # type: ignore[return-value]


def steps(size: Size) -> tuple[Any, tuple[Int, Int]]:
    """A function and the two numbers that it computes the size of, which is not a symbol alone."""
    facts = size.facts
    if len(size.terms) > 1:
        first = facts.make(dict(size.terms[:-1]))
        monomial, factor = size.terms[-1]
        if factor < 0:
            return operator.sub, (first, facts.make({monomial: -factor}))
        return operator.add, (first, facts.make({monomial: factor}))
    ((monomial, factor),) = size.terms
    if factor != 1:
        return operator.mul, (facts.make({monomial: 1}), factor)
    if len(monomial) > 1:
        return operator.mul, (facts.make({monomial[:-1]: 1}), facts.make({monomial[-1:]: 1}))
    atom = monomial[0]
    assert isinstance(atom, Apply)
    return OPS[atom.op], atom.args


def size_value(t: Tracer, size: Int) -> ConstValue:
    return SymbolicSize(t, size) if isinstance(size, Size) else ConstValue(int(size))


def size_of(value: Value) -> Int | None:
    """The number of an int, None for anything else."""
    if isinstance(value, SymbolicSize):
        return value.size
    if isinstance(value, SymbolicNumber) or not isinstance(value, ConstValue):
        return None
    return value.real if value.type() is int else None


def computed_size(t: Tracer, fn: Callable[..., Any], args: Sequence[Value]) -> Value | None:
    """`fn(*args)` of ints of which one is a size that varies; None where it is no arithmetic of sizes."""
    sizes = [size_of(a) for a in args]
    if not sizes or any(n is None for n in sizes) or not any(isinstance(n, Size) for n in sizes):
        return None
    if fn in COMPARED:
        return ConstValue(bool(fn(*sizes)))
    meaning = ARITHMETIC.get(fn)
    if meaning is None or (fn in DIVISIONS and not _is_positive(sizes[1])):
        return None
    if fn in (operator.pow, pow) and isinstance(sizes[-1], Size):
        return None
    return size_value(t, meaning(*sizes))


def _is_positive(n: Int) -> bool:
    return isinstance(n, Size) or n > 0
