"""Random numbers that the program draws in Python: `random.uniform(0, 1)`, `np.random.rand()`.

New code draws them in the same order, so that the random stream is the same as in plain Python. Only the
range of a number is known during the capture: it can be passed on and compared with numbers outside of its
range, and any other use breaks the graph.
"""

from __future__ import annotations

import math
import operator
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import NotConstant, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.function import BuiltinValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder

ORDERINGS = (operator.lt, operator.le, operator.gt, operator.ge)
Range = tuple[float, float]  # both ends included


class DrawValue(Value):
    """A number that new code draws, in `range`; that is None if the range is unknown."""

    def __init__(
        self, function: Any, args: tuple[Any, ...], cls: type, range: Range | None
    ) -> None:
        self.function = function
        self.args = args
        self.cls = cls
        self.range = range

    def describe(self) -> str:
        return "a random number"

    def rebuild(self, r: Rebuilder) -> None:
        r.call(self.function, *self.args)


@dataclass(frozen=True)
class Draw:
    """A drawing function. `valid`: whether a call with these arguments cannot fail. `range`: the range of the
    number."""

    cls: type
    least: int
    most: int
    valid: Callable[..., bool] = lambda *args: True
    range: Callable[..., Range | None] = lambda *args: None


def _unit(*args: Any) -> Range:
    return 0.0, 1.0


def _uniform(low: Any = 0.0, high: Any = 1.0) -> Range | None:
    """Returns the range; None if it does not start at 0, since rounding may go beyond the end."""
    return None if low or not math.isfinite(high) else (min(0.0, high), max(0.0, high))


def _is_span(*args: Any) -> bool:
    return all(type(arg) is int for arg in args) and args[0] <= args[-1] and len(args) == 2


def _is_range(*args: Any) -> bool:
    return all(type(arg) is int for arg in args) and len(range(*args)) > 0


def _is_finite(*args: Any) -> bool:
    return all(math.isfinite(arg) and abs(arg) < 1e100 for arg in args)


def _is_spread(*args: Any) -> bool:
    return _is_finite(*args) and (len(args) < 2 or args[1] >= 0)


def _is_small_range(*args: Any) -> bool:
    return _is_range(*args) and all(abs(arg) < 1 << 31 for arg in args)


PYTHON = {
    "random": Draw(float, 0, 0, range=_unit),
    "uniform": Draw(float, 2, 2, range=_uniform),
    "gauss": Draw(float, 0, 2, _is_spread),
    "normalvariate": Draw(float, 0, 2, _is_spread),
    "randint": Draw(int, 2, 2, _is_span),
    "randrange": Draw(int, 1, 2, _is_range),
}
NUMPY = {
    "random": Draw(float, 0, 0, range=_unit),
    "random_sample": Draw(float, 0, 0, range=_unit),
    "rand": Draw(float, 0, 0, range=_unit),
    "randn": Draw(float, 0, 0),
    "uniform": Draw(float, 0, 2, _is_finite, _uniform),
    "normal": Draw(float, 0, 2, _is_spread),
    "randint": Draw(int, 1, 2, _is_small_range),
}


KNOWN = {id(fn): (fn, PYTHON[name]) for name in PYTHON for fn in [getattr(random, name)]}


def draw_of(function: Any) -> Draw | None:
    """Returns what a function draws, None if it draws nothing. Some of the functions are methods, which may be
    compared by code of the program: their names and identities are read alone. NumPy's functions are known
    once a program has imported them."""
    if id(function) in KNOWN:
        return KNOWN[id(function)][1]
    name = getattr(function, "__name__", None)
    module = sys.modules.get("numpy.random")
    if module is None or name not in NUMPY or getattr(module, name, None) is not function:
        return None
    is_default = getattr(function, "__self__", None) is module.mtrand._rand  # type: ignore[attr-defined]
    return NUMPY[name] if is_default else None


class DrawFunction(BuiltinValue):
    """A function that draws."""

    def __init__(self, real: Any, origin: Origin, draw: Draw) -> None:
        super().__init__(real, origin)
        self.draw = draw

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        try:
            plain = tuple(t.look(arg).constant() for arg in args)
        except NotConstant:
            plain = (None,)
        draw = self.draw
        fits = not kwargs and draw.least <= len(plain) <= draw.most
        if not fits or any(type(a) not in (int, float) for a in plain) or not draw.valid(*plain):
            raise Break("unknown_call", f"{self.name}(...)")
        value = DrawValue(self.real, plain, draw.cls, draw.range(*plain))
        t.draws.append(value)
        t.on_undo(t.draws.pop)
        return value


def compared(fn: Callable[[Any, Any], Any], left: Value, right: Value) -> bool | None:
    """Returns the result of comparing a random number with a known one, if it is the same for the whole
    range; None otherwise."""
    ends = [_ends(value) for value in (left, right)]
    if fn not in ORDERINGS or None in ends:
        return None
    answers = {bool(fn(a, b)) for a in ends[0] or () for b in ends[1] or ()}
    return answers.pop() if len(answers) == 1 else None


def _ends(value: Value) -> Range | None:
    if isinstance(value, DrawValue):
        return value.range
    if isinstance(value, ConstValue) and value.is_specialized:
        known = value.real
        return (known, known) if type(known) in (int, float) else None
    return None
