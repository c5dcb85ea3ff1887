"""Objects that lead to another one: `types.MappingProxyType`, `threading.local`, whose attributes are those of
the thread, and `weakref.ref`, whose object can be freed while the program runs."""

from __future__ import annotations

import gc
import weakref
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import MISSING, class_attribute
from frameloom.capture.values.base import Value
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.opaque import OpaqueValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder

READERS = frozenset({"get", "keys", "values", "items", "copy"})


class MappingProxyValue(Value):
    """A mapping proxy; all operations go to `over`, the mapping."""

    cls = MappingProxyType

    def __init__(self, over: Value, real: Any = None, origin: Origin | None = None) -> None:
        self.over = over
        self.real = real
        self.origin = origin

    def parts(self) -> list[Value]:
        return [self.over]

    def truth(self, t: Tracer) -> bool:
        return self.over.truth(t)

    def length(self, t: Tracer) -> int:
        return self.over.length(t)

    def iterate(self, t: Tracer) -> Value:
        return self.over.iterate(t)

    def getitem(self, t: Tracer, key: Value) -> Value:
        return self.over.getitem(t, key)

    def contains(self, t: Tracer, item: Value) -> bool:
        return self.over.contains(t, item)

    def getattr(self, t: Tracer, name: str) -> Value:
        return self.over.getattr(t, name) if name in READERS else t.instance_attribute(self, name)

    def rebuild(self, r: Rebuilder) -> None:
        r.call(MappingProxyType, self.over)


def realize_proxy(t: Tracer, obj: MappingProxyType[Any, Any], origin: Origin) -> Value | None:
    """Returns the value of a mapping proxy; None if the mapping is not a dictionary."""
    (mapping,) = gc.get_referents(obj)
    t.guards.add(origin, "type", MappingProxyType)
    if type(mapping) is not dict:
        return None
    return MappingProxyValue(t.look(t.wrap(mapping, origin.child("proxied"))), obj, origin)


def is_mapping(value: Value) -> bool:
    return isinstance(value, DictValue) or (
        isinstance(value, ObjectValue) and isinstance(value.payload, DictValue)
    )


class ThreadLocalValue(OpaqueValue):
    """A `threading.local` itself. Instances of subclasses are opaque: their first use in a thread runs
    `__init__`."""

    def getattr(self, t: Tracer, name: str) -> Value:
        own, place = vars(self.real), self.origin.child("thread_dict")
        if name in own:
            return t.look(t.wrap(own[name], place.child("key", name)))
        if class_attribute(type(self.real), name) is not MISSING:
            return super().getattr(t, name)
        t.guards.add(place, "no_key", name)
        return t.raise_no_attribute("'_thread._local' object", name)


def realize_thread_local(t: Tracer, real: Any, origin: Origin) -> Value:
    t.guards.add(origin, "is", real)
    return ThreadLocalValue(real, origin)


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
