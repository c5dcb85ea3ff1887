"""The dictionary of an instance, if the program reads it by name."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.guards.raw_attributes import instance_dict
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.dictionary import DELETED, DictValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.object import ObjectValue


class AttributesValue(Value):
    """`obj.__dict__`: reads and writes go to the object's attributes. Each object has only one
    (`attributes_of`)."""

    def __init__(self, over: ObjectValue) -> None:
        self.over = over
        self.real = None if over.real is None else instance_dict(over.real)
        if over.origin is not None and self.real is not None:
            self.origin = over.origin.child("dict")
        self._table: _Table | None = None

    def type(self) -> type:
        return dict

    def parts(self) -> list[Value]:
        return [self.over]

    def table(self, t: Tracer) -> DictValue:
        """Returns it as an ordinary dictionary, for reading."""
        if self._table is None:
            self._table = _Table(self)
        return self._table

    def written(self) -> dict[str, tuple[Value, Value]]:
        """Returns what the capture wrote, in the form of `DictValue.written`."""
        attributes = self.over.attributes.items()
        return {name: (ConstValue(name), v) for name, v in attributes if not self._is_slot(name)}

    def _is_slot(self, name: str) -> bool:
        """Whether the attribute is stored in a slot and not in the dictionary."""
        return isinstance(class_attribute(self.over.cls, name), MemberDescriptorType)

    def getitem(self, t: Tracer, key: Value) -> Value:
        return self.table(t).getitem(t, key)

    def contains(self, t: Tracer, item: Value) -> bool:
        return self.table(t).contains(t, item)

    def length(self, t: Tracer) -> int:
        return len(self.table(t).entries(t))

    def truth(self, t: Tracer) -> bool:
        return self.length(t) > 0

    def iterate(self, t: Tracer) -> Value:
        return self.table(t).iterate(t)

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        if type(key.constant()) is not str:
            raise Break("attribute_write", "__dict__[...] = ... with a key that is no string")
        if self._is_slot(key.constant()):
            raise Break("attribute_write", "__dict__[...] = ... with the name of a slot")
        self.over.write(t, key.constant(), value)

    def getattr(self, t: Tracer, name: str) -> Value:
        if name in ("get", "keys", "values", "items", "copy", "__contains__"):
            return self.table(t).getattr(t, name)
        raise Break("attribute", f"__dict__.{name}")

    def rebuild(self, r: Rebuilder) -> None:
        r.code.start_call(
            instance_dict
        )  # the class's own `__getattribute__` was already interpreted
        r.load(self.over)
        r.code.call(1)


class _Table(DictValue):
    """The current attributes: views and iterators of it see changes."""

    def __init__(self, of: AttributesValue) -> None:
        self.of = of
        super().__init__(of.real, of.origin)

    @property
    def written(self) -> Any:
        return self.of.written()

    @written.setter
    def written(self, value: Any) -> None:
        pass

    @property
    def reshaped(self) -> Any:
        """A value that changes when a name is added or removed."""
        return tuple((name, value is DELETED) for name, (_, value) in self.written.items())

    @reshaped.setter
    def reshaped(self, value: Any) -> None:
        pass

    @property
    def grown(self) -> Any:
        """A value that changes when the number of names changes."""
        old: Any = self.real or ()
        gone = sum(value is DELETED for _, value in self.written.values())
        return sum(name not in old for name in self.written) - gone

    @grown.setter
    def grown(self, value: Any) -> None:
        pass

    def parts(self) -> list[Value]:
        return [self.of]

    def rebuild(self, r: Rebuilder) -> None:
        self.of.rebuild(r)


def attributes_of(t: Tracer, over: ObjectValue) -> AttributesValue:
    if over.namespace is None:
        over.namespace = AttributesValue(over)
    note_dictionary(t, over, changes=False)
    return over.namespace


def note_dictionary(t: Tracer, over: ObjectValue, changes: bool) -> None:
    """Notes that the object's attributes are read or changed. From now on, any other name for its dictionary
    leads to the object. If the dictionary was reached before, or objects share one dictionary, a change by
    one name is not visible by the other; then a change breaks the graph."""
    real = None if over.real is None or over.origin is None else instance_dict(over.real)
    if real is None:
        return
    if over.namespace is None:
        over.namespace = AttributesValue(over)
    known = t.know(real, over.namespace)
    if known is over.namespace:
        return
    other = known.over if isinstance(known, AttributesValue) else known
    also = getattr(other, "payload", None)
    if changes or id(other) in t.changed or id(also) in t.changed:
        raise Break("shared_dictionary", f"an attribute of {over.describe()}")
