"""Keys of dictionaries and sets that are equal only if they are the same object.

During the capture, a value stands for its object: two values are two objects. One guard for all values
that became keys checks that this holds in later calls (`GuardSet.distinct`), for all containers together.
An object that the guards pin is its own key. To look up a key in a container from before the call, the key
must be the same object as in the capture (`pin_key`).
"""

from __future__ import annotations

import enum
from types import BuiltinFunctionType, MethodWrapperType
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.base import Value
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def is_own(key: Any) -> bool:
    """Whether a key is the program's own object, with its hash, and not a substitute."""
    if isinstance(key, tuple | frozenset):
        return all(map(is_own, key))
    return not isinstance(key, Value | Fake) and not hasattr(key, "stands_for")


def identity_key(t: Tracer, value: Value) -> Any:
    """Returns the key of an object that is hashed by identity."""
    origin = value.origin
    if origin is None:
        return value if value.real is None else value.real
    t.guards.distinct(origin)
    return value.real if origin.kind == "object" else value


def pin_key(t: Tracer, key: Any) -> Any:
    """Returns the program's own object for a key, and guards that it is the same."""
    if isinstance(key, tuple):
        return tuple(pin_key(t, part) for part in key)
    if isinstance(key, frozenset):
        return frozenset(pin_key(t, part) for part in key)
    value = t.from_python(key) if isinstance(key, Fake) else key
    if not isinstance(value, Value):
        return key
    if value.origin is None or value.real is None:
        if isinstance(key, Fake):
            raise Break("dictionary_key", "a tensor made here as a key")
        return key  # an object made in this call is in no container from before
    t.guards.add(value.origin, "is", value.real)
    return value.real


# --- keys in containers from before the call


def is_compared_by_identity(key: Any) -> bool:
    """Whether equal keys are the same object, or are the same function written in C of the same object."""
    cls = type(key)
    return cls in C_FUNCTIONS or class_attribute(cls, "__eq__") is object.__eq__


def has_known_hash(key: Any) -> bool:
    """Whether such a key's hash never changes either; an enum's member is hashed by its name."""
    cls = type(key)
    if not is_compared_by_identity(key):
        return False
    return cls in C_FUNCTIONS or class_attribute(cls, "__hash__") in HASHES


C_FUNCTIONS = (BuiltinFunctionType, MethodWrapperType)
HASHES = (object.__hash__, enum.Enum.__hash__)
