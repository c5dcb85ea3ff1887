"""Iterators of the program's own classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.values.base import Raised, Value
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.object import ObjectValue


class UserIterator(Value):
    """An object that is its own iterator, with `__next__` in Python."""

    def __init__(self, over: ObjectValue) -> None:
        self.over = over
        self.origin = over.origin
        self.real = over.real

    def type(self) -> type:
        return self.over.type()

    def iterate(self, t: Tracer) -> Value:
        return self

    def parts(self) -> list[Value]:
        return [self.over]

    def step(self, t: Tracer) -> Value | None:
        try:
            result = self.over.call_special(t, "__next__")
        except Raised as raised:
            if raised.value.is_instance(StopIteration):  # type: ignore[attr-defined]
                return None
            raise
        if result is None:
            raise Break("opaque_iterable", f"next({self.over.describe()})")
        return result

    def rebuild(self, r: Rebuilder) -> None:
        r.load(self.over)
