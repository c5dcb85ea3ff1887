"""`weakref.ref` objects: what they refer to never changes, it can only go away."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.origin import Origin
    from frameloom.capture.rebuild import Rebuilder
    from frameloom.capture.tracer import Tracer


class WeakRefValue(Value):
    """A reference that existed before the call; its guard is its identity."""

    def __init__(self, real: weakref.ref[object], origin: Origin) -> None:
        self.real = real
        self.origin = origin

    def type(self) -> type:
        return weakref.ref

    def truth(self, t: Tracer) -> bool:
        return True

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """The guards keep the object from now on, so that the answer stays right."""
        if args or kwargs:
            raise Break("unknown_call", "a weak reference with arguments")
        obj = self.real()
        if obj is None:
            return NONE
        return t.known(obj) or t.pinned(obj)

    def rebuild(self, r: Rebuilder) -> None:
        r.load_constant_object(self.real)


def realize_weakref(t: Tracer, obj: weakref.ref[object], origin: Origin) -> Value:
    t.guards.add(origin, "is", obj)
    return WeakRefValue(obj, origin)
