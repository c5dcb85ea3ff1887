"""The interpreter's values, which stand for the program's objects.

`Value` is the protocol; each kind of object has a subclass in this folder. A method whose first argument
`t` is the `Tracer` may add guards, record tensor operations, run interpreted code, or raise `Break` if it
has no answer. Methods without `t` have no such effects. The defaults here break.

`LazyValue` stands for an object that was not looked at: it can be moved around without any guard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import name_in_texts
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


class NotConstant(Exception):
    """Raised if a value has no plain Python object at capture time."""


class Value:
    """One object of the program. `origin` is its source, None if it was made during the capture."""

    origin: Origin | None = None
    real: Any = None  # the object itself if it existed before the call
    native: type | None = None  # the class written in C, of a container
    holder: Value | None = (
        # for the payload of a new instance of a subclass of dict, list or tuple: that instance
        None
    )

    # --- properties, without effects
    def type(self) -> type:
        """Returns the exact type of the object."""
        raise NotImplementedError(type(self))

    def constant(self) -> Any:
        """Returns the plain Python object, for immutable constants and new containers of them; raises
        NotConstant otherwise."""
        raise NotConstant(self)

    def parts(self) -> list[Value]:
        """Returns the values that `rebuild` loads."""
        return []

    def describe(self) -> str:
        """Returns a text for messages."""
        return f"{self.type().__name__} object"

    # --- operations of the program
    def getattr(self, t: Tracer, name: str) -> Value:
        raise Break("attribute", f"{self.describe()}.{name}")

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        raise Break("attribute_write", f"{self.describe()}.{name} = ...")

    def delattr(self, t: Tracer, name: str) -> None:
        raise Break("attribute_write", f"del {self.describe()}.{name}")

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Break("unknown_call", f"{self.describe()}(...)")

    def truth(self, t: Tracer) -> bool:
        raise Break("opaque_object", f"bool({self.describe()})")

    def length(self, t: Tracer) -> int:
        raise Break("opaque_object", f"len({self.describe()})")

    def length_hint(self, t: Tracer) -> None:
        """Runs the program's methods that return a length hint; for callers that make a list of it."""

    def iterate(self, t: Tracer) -> Value:
        """Returns an iterator over it: an `IteratorValue`."""
        raise Break("opaque_iterable", f"iter({self.describe()})")

    def reverse(self, t: Tracer) -> Value:
        """Returns its `reversed`."""
        raise Break("opaque_iterable", f"reversed({self.describe()})")

    def getitem(self, t: Tracer, key: Value) -> Value:
        raise Break("opaque_object", f"{self.describe()}[...]")

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        if is_without(self.type(), "__setitem__"):
            text = f"'{name_in_texts(self.type())}' object does not support item assignment"
            t.raise_(TypeError, text)
        raise Break("opaque_object", f"{self.describe()}[...] = ...")

    def delitem(self, t: Tracer, key: Value) -> None:
        if is_without(self.type(), "__delitem__"):
            text = f"'{name_in_texts(self.type())}' object doesn't support item deletion"
            t.raise_(TypeError, text)
        raise Break("opaque_object", f"del {self.describe()}[...]")

    def contains(self, t: Tracer, item: Value) -> bool:
        raise Break("opaque_object", f"... in {self.describe()}")

    def key(self, t: Tracer) -> Any:
        """Returns a hashable object that stands for this one: two are equal exactly if the objects are equal
        as dictionary keys."""
        if self.type().__hash__ is None:
            t.raise_(TypeError, f"unhashable type: '{self.type().__name__}'")
        raise Break("opaque_object", f"hash({self.describe()})")

    # --- the end of a capture
    def check_rebuild(self) -> None:
        """Raises Avoid if plain Python must make the object, because of what was done with it."""

    def rebuild(self, r: Rebuilder) -> None:
        """Pushes the object in new code; called only for values without source, once per value."""
        raise Break("cannot_rebuild", self.describe())

    # --- changes, for values that can change
    def snapshot(self) -> Any:
        raise NotImplementedError

    def restore(self, saved: Any) -> None:
        raise NotImplementedError


def is_without(cls: Any, name: str) -> bool:
    """Whether a class written in C lacks a special method."""
    return not cls.__flags__ & 1 << 9 and not hasattr(cls, name)


class ExistingValue(Value):
    """An object that existed before the call, which new code may hold as a constant."""

    def __init__(self, real: Any, origin: Origin | None = None) -> None:
        self.real = real
        self.origin = origin

    def type(self) -> type:
        return type(self.real)

    def rebuild(self, r: Rebuilder) -> None:
        r.load_constant_object(self.real)


class LazyValue(Value):
    """An object at a source that has not been looked at. `Tracer.look` returns the value behind it and adds
    guards."""

    def __init__(self, obj: Any, origin: Origin) -> None:
        self.real = obj
        self.origin = origin
        self.realized: Value | None = None

    def describe(self) -> str:
        return f"{type(self.real).__name__} object"

    def type(self) -> type:
        raise AssertionError("a lazy value was looked at without Tracer.look")


class Null(Value):
    """The NULL that CPython pushes below a callable."""

    def describe(self) -> str:
        return "NULL"

    def rebuild(self, r: Rebuilder) -> None:
        r.code.emit("PUSH_NULL")


NULL = Null()


class Raised(Exception):
    """The interpreted program raises `value` (an `ExceptionValue`)."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value
        self.point: Any = None  # set by the frame that raised

    def __str__(self) -> str:
        return self.value.describe()
