"""Comparisons of dynamic sizes: the answer, True or False, is needed only if the program uses it.

A result that certainly follows from the sizes is known at once. Otherwise the comparison is a value of its
own, and it becomes a condition of the compiled code when its truth is needed. Many programs only pass it
on (`is_causal=queries > 1`), or test something else that decides (capture/symbolic/short_circuits.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.const import ConstValue, boolean
from frameloom.capture.values.numbers.size import SymbolicSize, size_of, size_value
from frameloom.capture.values.numbers.symbolic import DeferredValue
from frameloom.ir.symbolic.expr import Int, hint_of, shape_env_of
from frameloom.ir.symbolic.symint import TruthNode

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.base import Value

NEGATED: dict[Any, Any] = {
    operator.lt: operator.ge, operator.le: operator.gt, operator.gt: operator.le, operator.ge: operator.lt,
    operator.eq: operator.ne, operator.ne: operator.eq,
}  # fmt: skip


class SizeTruth(DeferredValue):
    """`fn(*sizes)`, a comparison. Code that treats it as an ordinary constant specializes it."""

    def __init__(self, t: Tracer, fn: Callable[..., Any], sizes: Sequence[Int]) -> None:
        super().__init__(t, False, None, fn)
        self.sizes = tuple(sizes)
        self._parts: list[Value] = [size_value(t, n) for n in sizes]

    @property
    def is_specialized(self) -> bool:
        return known_truth(self.fn, self.sizes) is not None

    def describe(self) -> str:
        return "a comparison of sizes"

    def specialize(self) -> bool:
        if self.t.frame is not None:
            self.t.recorder.current_call.where = (
                self.t.where()
            )  # the line that makes the assumption
        self.hint = bool(self.fn(*self.sizes))
        return self.hint

    def predicted(self) -> bool:
        """Returns the result in the captured call."""
        return bool(self.fn(*map(hint_of, self.sizes)))

    def bounds(self) -> tuple[Int, ...]:
        """Returns terms that are all at most 0 if the comparison is False."""
        a, b = self.sizes
        forms = {operator.gt: (a - b,), operator.ge: (a - b + 1,), operator.lt: (b - a,), operator.le: (b - a + 1,), operator.ne: (a - b, b - a)}  # fmt: skip
        return forms.get(self.fn, ())

    def negated(self) -> SizeTruth:
        return SizeTruth(self.t, NEGATED[self.fn], self.sizes)

    def parts(self) -> list[Value]:
        return self._parts

    def rebuild(self, r: Rebuilder) -> None:
        r.call(self.fn, *self.parts())


def known_truth(fn: Callable[..., Any], sizes: Sequence[Int]) -> bool | None:
    """Returns the result of the comparison if it is certain, None otherwise."""
    shape_env = shape_env_of(*sizes)
    if shape_env is None:
        return bool(fn(*sizes))
    return TruthNode(shape_env, fn, tuple(shape_env.resolved(n) for n in sizes)).known()


def compared_sizes(t: Tracer, fn: Callable[..., Any], args: Sequence[Value]) -> ConstValue | None:
    """Returns `fn(*args)` for ints, at least one of them a dynamic size; None if it is no such comparison."""
    if fn not in NEGATED or not any(isinstance(a, SymbolicSize) for a in args):
        return None
    sizes = [size_of(a) for a in args]
    if any(n is None for n in sizes):
        return None
    known = known_truth(fn, sizes)
    return SizeTruth(t, fn, sizes) if known is None else boolean(known)
