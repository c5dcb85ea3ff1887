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


class AttributesValue(DictValue):
    """`obj.__dict__`: reads and writes go to the object's attributes, so views and iterators see changes. Each
    object has only one (`attributes_of`)."""

    def __init__(self, over: ObjectValue) -> None:
        self.over = over
        real = None if over.real is None else instance_dict(over.real)
        has_origin = over.origin is not None and real is not None
        super().__init__(real, over.origin.child("dict") if has_origin else None)

    def _written(self) -> dict[str, tuple[Value, Value]]:
        attributes = self.over.attributes.items()
        return {name: (ConstValue(name), v) for name, v in attributes if not self._is_slot(name)}

    def _reshaped(self) -> Any:
        """Returns a value that changes when a name is added or removed."""
        return tuple((name, value is DELETED) for name, (_, value) in self.written.items())

    def _grown(self) -> int:
        """Returns a value that changes when the number of names changes."""
        old: Any = self.real or ()
        gone = sum(value is DELETED for _, value in self.written.values())
        return sum(name not in old for name in self.written) - gone

    def _is_computed(self, value: Any) -> None:
        """Called where a dictionary begins: there is nothing to store."""

    written: Any = property(_written, _is_computed)
    reshaped: Any = property(_reshaped, _is_computed)
    grown: Any = property(_grown, _is_computed)

    def _is_slot(self, name: str) -> bool:
        """Whether the attribute is stored in a slot and not in the dictionary."""
        return isinstance(class_attribute(self.over.cls, name), MemberDescriptorType)

    def set_at(self, t: Tracer, index: Any, key: Value, value: Value) -> None:
        if type(index) is not str:
            raise Break("attribute_write", "__dict__[...] = ... with a key that is no string")
        if self._is_slot(index):
            raise Break("attribute_write", "__dict__[...] = ... with the name of a slot")
        self.over.write(t, index, value)

    def delete_at(self, t: Tracer, index: Any, key: Value) -> None:
        raise Break("attribute_write", "del __dict__[...]")

    def getattr(self, t: Tracer, name: str) -> Value:
        if name in ("get", "keys", "values", "items", "copy", "__contains__"):
            return super().getattr(t, name)
        raise Break("attribute", f"__dict__.{name}")

    def parts(self) -> list[Value]:
        return [self.over]

    def rebuild(self, r: Rebuilder) -> None:
        r.call(
            instance_dict, self.over
        )  # the class's own `__getattribute__` was already interpreted


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
