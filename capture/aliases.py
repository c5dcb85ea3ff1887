"""Guards that what a call changes has no second name there: an object that is changed must not be one that was read under another name.

What was one object during capture is one value, and guarded to be one; here are those that were not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.attributes import instance_dict
from frameloom.capture.values.base import Value
from frameloom.capture.values.container import ListValue
from frameloom.capture.values.dictionary import DictValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.sets import SetValue

if TYPE_CHECKING:
    from frameloom.capture.origin import Origin
    from frameloom.capture.tracer import Tracer


def tell_objects_apart(t: Tracer) -> None:
    for value in t.changed.values():
        if value.origin is None:
            continue
        if isinstance(value, ListValue | DictValue | SetValue | ObjectValue):
            for other in t.known_objects(type(value.real)):
                if other is not value and other.origin is not value.origin:
                    t.guards.add(*apart(value, other))
        if isinstance(value, ObjectValue) and (own := dictionary(value)) is not None:
            for other in t.known_objects(dict):
                is_plain = isinstance(other, DictValue) and other.origin is not None
                if is_plain and other.real is not instance_dict(value.real):
                    t.guards.add(own, "different", other.origin)


def apart(value: Value, other: Value) -> tuple[Origin, str, Origin]:
    """The check that two objects are not one, and do not share their dictionary unless they do now."""
    own, others = dictionary(value), dictionary(other)
    is_shared = own is not None and instance_dict(value.real) is instance_dict(other.real)
    if own is not None and others is not None and not is_shared:
        return own, "different", others
    assert value.origin is not None and other.origin is not None
    return value.origin, "different", other.origin


def dictionary(value: Value) -> Origin | None:
    """Of an object that has attributes: those without have no dictionary of their own yet."""
    if not isinstance(value, ObjectValue) or value.origin is None or not instance_dict(value.real):
        return None
    return value.origin.child("dict")
