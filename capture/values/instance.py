"""Instances, and the look-up of their attributes.

Attributes are looked up as in CPython (class, instance dictionary, `__getattr__`), each step with the
guards that keep it valid. Python code on the way (properties, `__getattribute__`) is interpreted.
Attributes written during the capture are kept in `attributes` and written back at its end.
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from functools import _lru_cache_wrapper, cached_property
from types import (
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import (
    MISSING,
    attribute_after,
    class_attribute,
    is_data_descriptor,
    is_programs,
    works_as,
)
from frameloom.capture.guards.raw_attributes import (
    delete_attribute,
    instance_dict,
    is_own_slot,
    write_attribute,
)
from frameloom.capture.values.attributes import AttributesValue, attributes_of, note_dictionary
from frameloom.capture.values.base import Effect, Raised, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.dictionary import DELETED
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue
from frameloom.capture.values.unchanged import ABSENT, holds, note_end_of_attribute
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer

FIELD = type(
    vars(namedtuple("_", "field"))["field"]
)  # of the descriptors for fields of namedtuples
GENERIC_READERS = [
    cls.__getattribute__
    for cls in (
        object,
        dict,
        list,
        tuple,
        int,
        float,
        str,
        OrderedDict,
        SimpleNamespace,
        BaseException,
    )
]
GENERIC_WRITERS = [cls.__setattr__ for cls in (object, SimpleNamespace, BaseException)]


class InstanceValue(Value):
    """An instance of a class written in Python, with its attributes. `payload`: the built-in container inside
    an instance of a subclass of dict, list or tuple; the number or text inside one of int, float or str."""

    def __init__(
        self,
        cls: type,
        real: Any = None,
        origin: Origin | None = None,
        payload: Value | None = None,
    ) -> None:
        self.cls = cls
        self.real = real
        self.origin = origin
        self.payload = payload
        if payload is not None and real is None and payload.native is not None:
            payload.holder = self
        self.attributes: dict[str, Value] = {}
        self.namespace: AttributesValue | None = None
        self._names_are_plain: bool | None = None

    def describe(self) -> str:
        return self.cls.__name__

    # --- attributes
    def getattr(self, t: Tracer, name: str) -> Value:
        own = class_attribute(self.cls, "__getattribute__")
        if isinstance(own, FunctionType):
            try:
                return t.call_method(self.cls, "__getattribute__", [self, ConstValue(name)])
            except Raised as raised:
                return self._fallback(t, name, raised)
        if own not in GENERIC_READERS:
            raise Break("attribute", f"{self.describe()}.{name}")
        return self.generic_getattr(t, name)

    def generic_getattr(self, t: Tracer, name: str) -> Value:
        """Does what `object.__getattribute__` does, then `__getattr__`."""
        try:
            value = self.find(t, name) or self.registered(t, name)
            if value is not None:
                return value
            return t.raise_no_attribute(f"'{self.cls.__name__}' object", name)
        except Raised as raised:
            return self._fallback(t, name, raised)

    def registered(self, t: Tracer, name: str) -> Value | None:
        """Returns what a known `__getattr__` finds."""
        return None

    def _fallback(self, t: Tracer, name: str, raised: Raised) -> Value:
        hook = class_attribute(self.cls, "__getattr__")
        if hook is MISSING or not raised.is_a(AttributeError):
            raise raised
        if not isinstance(hook, FunctionType):
            raise Break("attribute", f"{self.describe()}.{name}")
        return t.call_method(self.cls, "__getattr__", [self, ConstValue(name)])

    def find(self, t: Tracer, name: str, after: type | None = None) -> Value | None:
        """Returns the attribute by the generic rules, None if there is none. `after`: search only the classes
        after this one (`super`)."""
        in_class = (
            class_attribute(self.cls, name)
            if after is None
            else attribute_after(self.cls, after, name)
        )
        if (
            is_data_descriptor(in_class)
            and class_attribute(type(in_class), "__get__") is not MISSING
        ):
            return self._descriptor(t, name, in_class, after)
        if after is None and (own := self.own(t, name)) is not None:
            return own
        if in_class is MISSING:
            return None
        return self._descriptor(t, name, in_class, after)

    def own(self, t: Tracer, name: str) -> Value | None:
        """Returns the attribute in the instance dictionary."""
        note_dictionary(t, self, changes=False)
        if name in self.attributes:
            value = self.attributes[name]
            return None if value is DELETED else t.look(value)
        if self.real is None:
            return None
        table = instance_dict(self.real)
        if table is None:
            return None
        if self._names_are_plain is None:
            self._names_are_plain = all(type(key) is str for key in table)
        if not self._names_are_plain:  # looking up a name may run the keys' own code
            raise Break("attribute", f"{self.describe()}.{name} beside names that are no strings")
        if name in table:
            return t.look(t.wrap(table[name], self.origin.child("dict").child("key", name)))
        t.guards.add(self.origin, "no_attr", name)
        return None

    def _descriptor(self, t: Tracer, name: str, attribute: Any, after: type | None) -> Value:
        origin = t.class_origin(self.cls).child("attr", name) if after is None else None
        if isinstance(attribute, FunctionType) or t.is_jitted(attribute):
            return BoundMethodValue(t.class_function(self.cls, name, attribute, after), self)
        if works_as(attribute, property):
            if attribute.fget is None:
                t.raise_unworded(AttributeError, f"property {name} without getter")
            return t.call(t.pinned(attribute.fget), [self], {})
        if works_as(attribute, staticmethod):
            return t.pinned(attribute.__func__)
        if works_as(attribute, classmethod) and isinstance(attribute.__func__, FunctionType):
            return BoundMethodValue(t.pinned(attribute.__func__), t.pinned(self.cls))
        if name == "__dict__":
            return attributes_of(t, self)
        if is_own_slot(self.cls, name, attribute):
            return self._slot(t, name, attribute)
        if type(attribute) is FIELD and self.payload is not None:
            place, _ = attribute.__reduce__()[1]
            return self.payload.getitem(t, ConstValue(place))
        if name == "__class__":
            return t.pinned(self.cls)
        if type(attribute) in (MethodDescriptorType, WrapperDescriptorType):
            if not issubclass(self.cls, attribute.__objclass__):
                raise Break("exception", f"{self.describe()}.{name} of another class")
            return BoundMethodValue(BuiltinValue(attribute), self)
        if type(attribute) is _lru_cache_wrapper:
            return BoundMethodValue(t.pinned(attribute), self)
        if type(attribute) is cached_property and attribute.attrname is not None:
            value = t.call(t.pinned(attribute.func), [self], {})
            self.setattr_generic(t, name, value)
            return value
        getter = class_attribute(type(attribute), "__get__")
        if getter is not MISSING:
            if isinstance(getter, FunctionType):
                return t.call(t.pinned(getter), [t.pinned(attribute), self, t.pinned(self.cls)], {})
            raise Break("attribute", f"{self.describe()}.{name}")
        if origin is None:
            return t.pinned(attribute)
        return t.look(t.wrap(attribute, origin))

    def _slot(self, t: Tracer, name: str, descriptor: MemberDescriptorType) -> Value:
        if class_attribute(self.cls, name) is not descriptor:  # a slot of the same name elsewhere
            raise Break("attribute", f"{self.describe()}.{name} of another class")
        if name in self.attributes:
            value = self.attributes[name]
            if value is not DELETED:
                return t.look(value)
        elif self.real is not None:
            try:
                return t.look(
                    t.wrap(descriptor.__get__(self.real), self.origin.child("attr", name))
                )
            except AttributeError:
                raise Break("attribute", f"empty slot {self.describe()}.{name}") from None
        t.raise_unworded(AttributeError, f"empty slot {self.describe()}.{name}")

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        own = class_attribute(self.cls, "__setattr__")
        if isinstance(own, FunctionType):
            t.call_method(self.cls, "__setattr__", [self, ConstValue(name), value])
            return
        if own not in GENERIC_WRITERS:
            raise Break("attribute_write", f"{self.describe()}.{name} = ...")
        self.setattr_generic(t, name, value)

    def setattr_generic(self, t: Tracer, name: str, value: Value) -> None:
        """Does what `object.__setattr__` does."""
        attribute = class_attribute(self.cls, name)
        if works_as(attribute, property, "__set__"):
            if attribute.fset is None:
                t.raise_unworded(AttributeError, f"property {name} without setter")
            t.call(t.pinned(attribute.fset), [self, value], {})
            return
        if is_data_descriptor(attribute) and not is_own_slot(self.cls, name, attribute):
            setter = class_attribute(type(attribute), "__set__")
            if isinstance(setter, FunctionType):
                t.call(t.pinned(setter), [t.pinned(attribute), self, value], {})
                return
            raise Break("attribute_write", f"{self.describe()}.{name} = ...")
        if name in ("__class__", "__dict__"):
            raise Break("attribute_write", f"{self.describe()}.{name} = ...")
        if self.cls.__dictoffset__ == 0 and not isinstance(attribute, MemberDescriptorType):
            t.raise_no_attribute(f"'{self.cls.__name__}' object", name)
        self.write(t, name, value)

    def write(self, t: Tracer, name: str, value: Value) -> None:
        if self.real is not None and self.origin is None:
            raise Break("attribute_write", f"{self.describe()}.{name} = ...")
        if self.attributes.get(name) is DELETED:  # behind the break, Python would put it last
            raise Break("attribute_write", f"{self.describe()}.{name} = ... of what was deleted")
        note_dictionary(t, self, changes=True)
        t.change(self)
        self.attributes[name] = value

    def delattr(self, t: Tracer, name: str) -> None:
        hook = class_attribute(self.cls, "__delattr__")
        if isinstance(hook, FunctionType):
            t.call_method(self.cls, "__delattr__", [self, ConstValue(name)])
            return
        if is_programs(hook):
            raise Break("attribute_write", f"del {self.describe()}.{name}")
        self.delattr_generic(t, name)

    def delattr_generic(self, t: Tracer, name: str) -> None:
        """Does what `object.__delattr__` does."""
        attribute = class_attribute(self.cls, name)
        if works_as(attribute, property, "__delete__"):
            if attribute.fdel is None:
                t.raise_(AttributeError, f"property '{name}' has no deleter")
            t.call(t.pinned(attribute.fdel), [self], {})
            return
        if is_data_descriptor(attribute) and not is_own_slot(self.cls, name, attribute):
            raise Break("attribute_write", f"del {self.describe()}.{name}")
        if self.own(t, name) is None:
            t.raise_unworded(AttributeError, f"del {self.describe()}.{name}")
        if self.real is not None and isinstance(attribute, MemberDescriptorType):
            raise Break("attribute_write", f"del {self.describe()}.{name}")
        if self._was_there(t, name):
            self.write(t, name, DELETED)
        else:
            t.change(self)
            del self.attributes[name]

    def _was_there(self, t: Tracer, name: str) -> bool:
        """Whether the instance dictionary had the name before the call."""
        table = None if self.real is None else instance_dict(self.real)
        if table is None or self.origin is None:
            return False
        if name not in table:
            t.guards.add(self.origin, "no_attr", name)
            return False
        t.guards.reaches(self.origin.child("dict").child("key", name))
        return True

    # --- the end of a capture
    def effects(self, t: Tracer) -> list[Effect]:
        before = instance_dict(self.real) or {}
        table = self.origin.child("dict")
        effects = []
        for name, new in self.attributes.items():
            if new is not DELETED and holds(
                t, new, before.get(name, ABSENT), table.child("key", name)
            ):
                continue
            note_end_of_attribute(t, self.real, self.origin, name)
            if new is DELETED:
                effects.append(Effect(self, delete_attribute, name))
            else:
                effects.append(Effect(self, write_attribute, name, new))
        return effects
