"""Instances of classes written in Python: what operators and built-in functions do with them.

Special methods of their classes are interpreted; instance.py looks attributes up.
"""

from __future__ import annotations

import sys
from types import (
    FunctionType,
    SimpleNamespace,
)
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import (
    MISSING,
    class_attribute,
    has_programs_methods,
    refuses_instances,
)
from frameloom.capture.guards.raw_attributes import (
    DICT_STORES,
    new_instance,
    set_attributes,
)
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.containers.dictionary import DELETED, DefaultDictValue, DictValue
from frameloom.capture.values.containers.iterator import (
    GetitemIterator,
    GetitemReversed,
    IteratorValue,
    UserIterator,
)
from frameloom.capture.values.identity import identity_key
from frameloom.capture.values.instance import InstanceValue
from frameloom.capture.values.user_key import UserKey, check_keys
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


class ObjectValue(InstanceValue):
    """An instance."""

    mutable = ("attributes",)

    def special(self, name: str) -> Any:
        """Returns the Python function that implements a special method, MISSING if there is none in
        Python."""
        method = class_attribute(self.cls, name)
        if isinstance(method, FunctionType):
            return method
        is_native = (
            type(method).__name__ in ("wrapper_descriptor", "method_descriptor")
            and method.__name__ == name
            and not refuses_instances(self.cls, method)
        )
        if method is not MISSING and not is_native:
            raise Break("attribute", f"{self.describe()}.{name}")
        return MISSING

    def call_special(self, t: Tracer, name: str, *args: Value) -> Value | None:
        """Returns the result of a special method written in Python, None if the class has none."""
        method = self.special(name)
        if method is MISSING:
            native = class_attribute(self.cls, name)
            if getattr(native, "__objclass__", None) is SimpleNamespace and name != "__init__":
                return t.call_builtin(native, [self, *args], {})
            return None
        return t.look(t.call_method(self.cls, name, [self, *args]))

    def truth(self, t: Tracer) -> bool:
        result = self.call_special(t, "__bool__")
        if result is not None:
            if result.type() is not bool:
                t.raise_unworded(TypeError, f"bool({self.describe()})")
            return result.truth(t)
        if class_attribute(self.cls, "__bool__") is not MISSING:
            return super().truth(t) if boxed(self) is None else boxed(self).truth(t)
        if self.special("__len__") is not MISSING:
            return self.length(t) > 0
        if self.payload is not None:
            return self.payload.truth(t)
        return True if class_attribute(self.cls, "__len__") is MISSING else super().truth(t)

    def length(self, t: Tracer) -> int:
        result = self.call_special(t, "__len__")
        if result is not None:
            if (
                not isinstance(result, ConstValue)
                or type(result.real) is not int
                or not 0 <= result.real <= sys.maxsize
            ):
                raise Break("exception", f"len({self.describe()})")
            return result.real
        return self.payload.length(t) if self.payload is not None else super().length(t)

    def length_hint(self, t: Tracer) -> None:
        for name in ("__len__", "__length_hint__"):
            if class_attribute(self.cls, name) is MISSING:
                continue
            try:
                hint = self.call_special(t, name)
            except Raised as raised:
                if raised.is_a(TypeError):
                    continue
                raise
            if hint is None:
                return
            if isinstance(hint, ConstValue) and type(hint.real) is int and hint.real >= 0:
                return
            raise Break("exception", f"{name} of {self.describe()}")

    def reverse(self, t: Tracer) -> Value:
        """Returns `reversed` of an object with `__reversed__`, or with `__len__` and `__getitem__`."""
        if (result := self.call_special(t, "__reversed__")) is not None:
            return result
        if self.special("__len__") is MISSING or self.special("__getitem__") is MISSING:
            return super().reverse(t)
        return GetitemReversed(self, self.length(t))

    def iterate(self, t: Tracer) -> Value:
        result = self.call_special(t, "__iter__")
        if result is not None:
            if isinstance(result, IteratorValue):
                return result
            if class_attribute(result.type(), "__next__") is MISSING:
                text = f"iter() returned non-iterator of type '{result.type().__name__}'"
                t.raise_(TypeError, text)
            return UserIterator(result) if isinstance(result, ObjectValue) else result.iterate(t)
        if self.payload is not None:
            return self.payload.iterate(t)
        if self.special("__getitem__") is not MISSING:
            return GetitemIterator(self)
        return super().iterate(t)

    def getitem(self, t: Tracer, key: Value) -> Value:
        result = self.call_special(t, "__getitem__", key)
        if result is not None:
            return result
        if isinstance(self.payload, DictValue) and self.payload.get(t, key) is None:
            result = self.call_special(t, "__missing__", key)
            if result is None and isinstance(self.payload, DefaultDictValue):
                return self.payload.missing(t, key, self)
            return result if result is not None else self.payload.getitem(t, key)
        if self.payload is not None:
            return self.payload.getitem(t, key)
        return super().getitem(t, key)

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        if self.call_special(t, "__setitem__", key, value) is None:
            if self.payload is None or issubclass(self.cls, tuple):
                super().setitem(t, key, value)
            else:
                self.payload.setitem(t, key, value)

    def delitem(self, t: Tracer, key: Value) -> None:
        if self.call_special(t, "__delitem__", key) is None:
            if self.payload is None or issubclass(self.cls, tuple):
                super().delitem(t, key)
            else:
                self.payload.delitem(t, key)

    def contains(self, t: Tracer, item: Value) -> bool:
        result = self.call_special(t, "__contains__", item)
        if result is not None:
            return result.truth(t)
        if self.payload is not None:
            return self.payload.contains(t, item)
        if self.special("__iter__") is not MISSING:
            return any(t.same_or_equal(t.look(own), item) for own in t.each(self))
        return super().contains(t, item)

    def key(self, t: Tracer) -> Any:
        if class_attribute(self.cls, "__hash__") is not object.__hash__:
            if (inside := boxed(self)) is not None and not has_programs_methods(self.cls):
                return inside.key(t)
            return super().key(t) if self.special("__hash__") is MISSING else UserKey(t, self)
        return identity_key(t, self)

    # --- the end of a capture
    def parts(self) -> list[Value]:
        own = [value for value in self.attributes.values() if value is not DELETED]
        return own if self.payload is None else [*own, *self.payload.parts()]

    def check_rebuild(self) -> None:
        if isinstance(self.payload, DictValue):
            check_keys(self.payload.written)

    def rebuild(self, r: Rebuilder) -> None:
        if self.real is not None:
            r.code.load_const(self.real)
            return
        payload = self.payload
        is_tuple = isinstance(payload, TupleValue)
        inside = boxed(self)
        r.call(
            new_instance, self.cls, *([payload.items] if is_tuple else [inside] if inside else [])
        )
        r.keep(self)
        if isinstance(payload, DictValue):
            store = DICT_STORES[next(c for c in self.cls.__mro__ if c in DICT_STORES)]
            for key, value in payload.written.values():
                r.do(store, self, key, value)
        elif payload is not None and not is_tuple and inside is None:
            r.do(list.extend, self, payload.parts())
        if self.attributes:
            r.do(set_attributes, self, tuple(self.attributes), [*self.attributes.values()])


def boxed(value: Value) -> ConstValue | None:
    """Returns the number or text inside an instance of a subclass of int, float or str; None for others."""
    inside = value.payload if isinstance(value, ObjectValue) else None
    return inside if isinstance(inside, ConstValue) else None
