"""The dictionary of an instance, where the program asks for it by name."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import TYPE_CHECKING

from frameloom.capture.attributes import instance_dict
from frameloom.capture.lookup import class_attribute
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.dictionary import DictValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.rebuild import Rebuilder
    from frameloom.capture.tracer import Tracer
    from frameloom.capture.values.object import ObjectValue


class AttributesValue(Value):
    """`obj.__dict__`: reads and writes go to the object's attributes.  There is one of each object (`attributes_of`)."""

    def __init__(self, over: ObjectValue) -> None:
        self.over = over
        self.real = None if over.real is None else instance_dict(over.real)
        if over.origin is not None and self.real is not None:
            self.origin = over.origin.child("dict")

    def type(self) -> type:
        return dict

    def parts(self) -> list[Value]:
        return [self.over]

    def table(self, t: Tracer) -> DictValue:
        """As an ordinary dictionary, for reading."""
        table = DictValue(self.real, self.origin)
        for name, value in self.over.attributes.items():
            if not self._is_slot(name):
                table.written[name] = (ConstValue(name), value)
        return table

    def _is_slot(self, name: str) -> bool:
        """Whether the attribute of that name is beside the dictionary."""
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
        )  # the class's own `__getattribute__` was interpreted already
        r.load(self.over)
        r.code.call(1)


def attributes_of(t: Tracer, over: ObjectValue) -> AttributesValue:
    if over.namespace is None:
        over.namespace = AttributesValue(over)
    note_dictionary(t, over, changes=False)
    return over.namespace


def note_dictionary(t: Tracer, over: ObjectValue, changes: bool) -> None:
    """The object's attributes are read, or changed.  Whoever reaches its dictionary under another name finds the object from now on; where that
    happened before, or objects share one dictionary, no change by one name is seen under the other."""
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
