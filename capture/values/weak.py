"""`weakref.ref` objects: their objects can be freed while the program runs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from frameloom.capture.values.base import Value
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer


class WeakRefValue(Value):
    """A reference that existed before the call."""

    cls = weakref.ref
    is_true = True

    def __init__(self, real: weakref.ref[object], origin: Origin) -> None:
        self.real = real
        self.origin: Origin = origin

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Returns the object that it refers to when the call begins, if that is still held."""
        if args or kwargs:
            raise Break("unknown_call", "a weak reference with arguments")
        obj = self.real()
        if obj is not None and not self._is_held(t, obj):
            raise Break("unknown_call", "a weak reference, whose object may have gone")
        return t.look(t.wrap(obj, self.origin.child("referent")))

    def _is_held(self, t: Tracer, obj: object) -> bool:
        """Whether the object is still held. What can be reached when the call begins stays alive unless the
        program changes something there. The caller holds the arguments of the captured function; those of
        a resume function are held only by variables, which may be deleted."""
        if any(value.origin is not None for value in t.changed.values()):
            return False
        if not t.options.resumed:
            return True
        known = t.known(obj)
        root = None if known is None else known.origin
        while root is not None and root.base is not None and root.kind != "referent":
            root = root.base
        if root is not None and root.kind == "referent":  # a weak reference holds nothing
            root = None
        if root is not None and root.kind != "arg":
            return True
        frame = t.frame
        while frame is not None:
            for value in frame.slots.values():
                if value.origin is not None and (value.origin is root or value.real is obj):
                    return True
            frame = frame.parent
        return False


def realize_weakref(t: Tracer, obj: weakref.ref[object], origin: Origin) -> Value:
    t.guards.add(origin, "type", weakref.ref)
    return WeakRefValue(obj, origin)
