"""Random numbers that the program draws in Python: `random.uniform(0, 1)`, `np.random.rand()`.

New code draws them in the same order, so that the random stream is the same as in plain Python. The
numbers are not known during the capture: they can be passed on and compared with numbers outside their
range (`values/draw.py`), and any other use breaks the graph.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Known, Kwargs
from frameloom.capture.values.base import NotConstant, Value
from frameloom.capture.values.draw import DrawValue, Range
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


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


def _drawing(function: Any, draw: Draw) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        name = f"{function.__name__}(...)"
        try:
            plain = tuple(t.look(arg).constant() for arg in args)
        except NotConstant:
            raise Break("unknown_call", name) from None
        if kwargs or not draw.least <= len(plain) <= draw.most:
            raise Break("unknown_call", name)
        if any(type(arg) not in (int, float) for arg in plain) or not draw.valid(*plain):
            raise Break("unknown_call", name)
        value = DrawValue(function, plain, draw.cls, draw.range(*plain))
        t.draws.append(value)
        t.on_undo(t.draws.pop)
        return value

    return handler


DRAWS: dict[
    int, Any
] = {}  # the functions by their id: some are methods, new objects at each attribute read


def _register(function: Any, draw: Draw) -> None:
    DRAWS[id(function)] = function
    FUNCTIONS[function] = _drawing(function, draw)


for _name, _draw in PYTHON.items():
    _register(getattr(random, _name), _draw)


def is_draw(function: Any) -> bool:
    """Whether calling it draws a number. NumPy's functions are known once a program has imported them."""
    if id(function) in DRAWS:
        return True
    module = sys.modules.get("numpy.random")
    name = getattr(function, "__name__", None)
    if module is None or name not in NUMPY or getattr(module, name, None) is not function:
        return False
    if getattr(function, "__self__", None) is not module.mtrand._rand:  # type: ignore[attr-defined]
        return False
    _register(function, NUMPY[name])
    return True
