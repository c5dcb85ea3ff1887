"""Keys of dictionaries and sets that are equal where they are the same object.

While capturing, the value stands for its object: two values are two objects.  That they are in later calls, too, is one guard of all values that
became keys (`GuardSet.distinct`), whichever containers they met in.  An object that the guards pin is its own key.  To look a key up in a
container from before the call, it has to be the object that it was (`pin_key`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.base import Value
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def is_own(key: Any) -> bool:
    """Whether a key is the program's own object, with its hash, and not a stand-in."""
    if isinstance(key, tuple | frozenset):
        return all(map(is_own, key))
    return not isinstance(key, Value | Fake) and not hasattr(key, "stands_for")


def identity_key(t: Tracer, value: Value) -> Any:
    """The key of an object that is hashed by identity."""
    origin = value.origin
    if origin is None:
        return value if value.real is None else value.real
    t.guards.distinct(origin)
    return value.real if origin.kind == "object" else value


def pin_key(t: Tracer, key: Any) -> Any:
    """The program's own object for a key, guarded to be that one."""
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
        return key  # an object made here is in no container from before
    t.guards.add(value.origin, "is", value.real)
    return value.real
