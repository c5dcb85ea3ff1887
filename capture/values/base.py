"""The interpreter's values, which stand for the program's objects.

`Value` is the protocol; each kind of object has a subclass in this folder. A method whose first argument
`t` is the `Tracer` may add guards, record tensor operations, run interpreted code, or raise `Break` if it
has no answer. Methods without `t` have no such effects. The defaults here break.

`LazyValue` stands for an object that was not looked at: it can be moved around without any guard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from frameloom.capture.guards.class_lookup import name_in_texts
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


class NotConstant(Exception):
    """Raised if a value has no plain Python object at capture time."""


MUTABLE = (list, dict, set)


class Effect:
    """A write to an object from before the call, which is due after the graph: new code calls `function` with
    the object and `operands` (see `Rebuilder.call`). Only final states matter, since no code of the program
    runs in between."""

    def __init__(self, target: Value, function: Any, *operands: Any) -> None:
        self.target = target
        self.function = function
        self.operands = operands

    @property
    def values(self) -> list[Value]:
        """The values that the write needs."""
        parts = [self.target]
        for operand in self.operands:
            parts += operand if isinstance(operand, list) else [operand]
        return [part for part in parts if isinstance(part, Value)]


class Value:
    """One object of the program. `origin` is its source, None if it was made during the capture."""

    origin: Origin | None = None
    real: Any = None  # the object itself if it existed before the call
    cls: Any = None  # the exact type of the object, unless `type` finds it in another way
    is_output = False  # whether a result of the graph is the object itself
    is_true = False  # whether all objects of the class are true
    native: type | None = None  # the class written in C, of a container
    holder: Value | None = (
        # for the payload of a new instance of a subclass of dict, list or tuple: that instance
        None
    )

    # --- properties, without effects
    def type(self) -> type:
        """Returns the exact type of the object."""
        return self.cls  # type: ignore[no-any-return]

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
    def refuse(self, kind: str, use: str) -> NoReturn:
        """Breaks the graph at a use of the object."""
        raise Break(kind, use)

    def getattr(self, t: Tracer, name: str) -> Value:
        if self.native is not None:
            return t.instance_attribute(self, name)
        self.refuse("attribute", f"{self.describe()}.{name}")

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        self.refuse("attribute_write", f"{self.describe()}.{name} = ...")

    def delattr(self, t: Tracer, name: str) -> None:
        self.refuse("attribute_write", f"del {self.describe()}.{name}")

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self.refuse("unknown_call", f"{self.describe()}(...)")

    def truth(self, t: Tracer) -> bool:
        if self.native is not None:
            return self.length(t) > 0
        if self.is_true:
            return True
        self.refuse("opaque_object", f"bool({self.describe()})")

    def length(self, t: Tracer) -> int:
        self.refuse("opaque_object", f"len({self.describe()})")

    def length_hint(self, t: Tracer) -> None:
        """Runs the program's methods that return a length hint; for callers that make a list of it."""

    def iterate(self, t: Tracer) -> Value:
        """Returns an iterator over it: an `IteratorValue`."""
        self.refuse("opaque_iterable", f"iter({self.describe()})")

    def reverse(self, t: Tracer) -> Value:
        """Returns its `reversed`."""
        self.refuse("opaque_iterable", f"reversed({self.describe()})")

    def getitem(self, t: Tracer, key: Value) -> Value:
        self.refuse("opaque_object", f"{self.describe()}[...]")

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        if is_without(self.type(), "__setitem__"):
            text = f"'{name_in_texts(self.type())}' object does not support item assignment"
            t.raise_(TypeError, text)
        self.refuse("opaque_object", f"{self.describe()}[...] = ...")

    def delitem(self, t: Tracer, key: Value) -> None:
        if is_without(self.type(), "__delitem__"):
            text = f"'{name_in_texts(self.type())}' object doesn't support item deletion"
            t.raise_(TypeError, text)
        self.refuse("opaque_object", f"del {self.describe()}[...]")

    def operator(self, t: Tracer, fn: Any, other: Value) -> Value | None:
        """Applies a binary operator or a comparison of its class, written in C; returns None if it has no answer
        for `other`."""
        return None

    def operate_in_place(self, t: Tracer, fn: Any, other: Value) -> bool:
        """Changes itself by the operator, and returns whether its class has one that does."""
        return False

    def copied(self, copier: Copier) -> Value:
        """Returns the copy that `copy.copy` or `copy.deepcopy` makes."""
        raise Break("library_call", f"copy of {self.describe()}")

    def contains(self, t: Tracer, item: Value) -> bool:
        self.refuse("opaque_object", f"... in {self.describe()}")

    def key(self, t: Tracer) -> Any:
        """Returns a hashable object that stands for this one: two are equal exactly if the objects are equal
        as dictionary keys."""
        if self.type().__hash__ is None:
            t.raise_(TypeError, f"unhashable type: '{self.type().__name__}'")
        self.refuse("opaque_object", f"hash({self.describe()})")

    # --- the end of a capture
    def check_rebuild(self) -> None:
        """Raises Avoid if plain Python must make the object, because of what was done with it."""

    def rebuild(self, r: Rebuilder) -> None:
        """Pushes the object in new code; called only for values without source, once per value."""
        raise Break("cannot_rebuild", self.describe())

    @property
    def is_shared_with_caller(self) -> bool:
        """Whether code outside of this call may see the object, so that its changes are written back."""
        return self.origin is not None

    # --- changes, for values that can change
    def effects(self, t: Tracer) -> list[Effect]:
        """Returns the writes that bring the object from its state before the call into its final one. What is
        set and set back needs no write."""
        return []

    mutable: tuple[str, ...] = ()  # names of the attributes that change

    def snapshot(self) -> Any:
        values = [getattr(self, name) for name in self.mutable]
        return [v.copy() if isinstance(v, MUTABLE) else v for v in values]

    def restore(self, saved: Any) -> None:
        for name, value in zip(self.mutable, saved, strict=True):
            setattr(self, name, value)


class Copier(Protocol):
    """One call of `copy.copy`, or of `copy.deepcopy` (`deep`)."""

    t: Tracer
    deep: bool
    memo: dict[int, Any]  # the copies by the id of the original

    def part(self, value: Value) -> Value:
        """Returns what the copy has in place of an item."""

    def check_class(self, value: Value) -> None:
        """Breaks if the class is not copied by its instances' items or attributes."""


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
        r.code.load_const(self.real)


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


def realized(value: Value) -> Value:
    """Returns the value behind a lazy value that was looked at (one that was not is used by its source), or
    the object that a payload belongs to."""
    if isinstance(value, LazyValue) and value.realized is not None:
        value = value.realized
    return value.holder if value.holder is not None else value


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

    def is_a(self, *classes: type[BaseException]) -> bool:
        return issubclass(self.value.cls, classes)


class ignoring:
    """`with ignoring(StopIteration):` drops these exceptions of the interpreted program."""

    def __init__(self, *classes: type[BaseException]) -> None:
        self.classes = classes

    def __enter__(self) -> None:
        pass

    def __exit__(self, cls: Any, error: Any, traceback: Any) -> bool:
        return isinstance(error, Raised) and error.is_a(*self.classes)
