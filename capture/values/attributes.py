"""The dictionary of an instance, where the program asks for it by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.attributes import instance_dict
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.dictionary import DictValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.rebuild import Rebuilder
    from frameloom.capture.tracer import Tracer
    from frameloom.capture.values.object import ObjectValue


class AttributesValue(Value):
    """`obj.__dict__`: reads and writes go to the object's attributes."""

    def __init__(self, over: ObjectValue) -> None:
        self.over = over

    def type(self) -> type:
        return dict

    def parts(self) -> list[Value]:
        return [self.over]

    def table(self, t: Tracer) -> DictValue:
        """As an ordinary dictionary, for reading."""
        over = self.over
        base = None if over.real is None else instance_dict(over.real)
        origin = over.origin.child("dict") if over.origin is not None and base is not None else None
        table = DictValue(base, origin)
        for name, value in over.attributes.items():
            table.written[name] = (ConstValue(name), value)
        return table

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
        if not isinstance(key.constant(), str):
            raise Break("attribute_write", "__dict__[...] = ... with a key that is no string")
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
