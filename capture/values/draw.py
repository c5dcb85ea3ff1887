"""A random number that the program draws in Python: only its range is known during the capture.

The rules are in library/torch_api/draws.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue

if TYPE_CHECKING:
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

    def type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return "a random number"

    def rebuild(self, r: Rebuilder) -> None:
        r.code.call_const(self.function, *self.args)


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
    if isinstance(value, ConstValue) and getattr(value, "is_specialized", True):
        known = value.real
        return (known, known) if type(known) in (int, float) else None
    return None
