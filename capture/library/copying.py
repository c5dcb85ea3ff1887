"""`copy.copy` and `copy.deepcopy` of containers, constants and plain Python objects.

The methods of objects are called, and copies made, in the order of the module `copy`. Classes that define
their own copying (other than by `__copy__` and `__deepcopy__`), modules and tensors are left to Python.
"""

from __future__ import annotations

import copy
import copyreg
from types import FunctionType
from typing import TYPE_CHECKING

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.interpreter.classes import check_finalizer
from frameloom.capture.values.attributes import AttributesValue
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE, ConstValue, is_none
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import BuiltinValue, FunctionValue
from frameloom.capture.values.module import ModuleValue
from frameloom.capture.values.object import MISSING, ObjectValue, class_attribute
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.token import TokenValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

# Other attributes that may decide how an object is copied.
CUSTOM = (
    "__new__",
    "__getattribute__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__slots__",
)


@knows(copy.copy, least=1, most=1)
def _copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _Copier(t, deep=False).copy(t.look(args[0]))


@knows(copy.deepcopy, least=1, most=2)
def _deepcopy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    memo = t.look(args[1]) if len(args) > 1 else NONE
    if isinstance(memo, MemoValue):
        return memo.copier.copy(t.look(args[0]))
    if kwargs or not is_none(memo):
        raise Break("library_call", "copy.deepcopy(x, memo)")
    return _Copier(t, deep=True).copy(t.look(args[0]))


class MemoValue(Value):
    """The dictionary argument of `__deepcopy__`: the method passes it on, and may store the copy of its own
    object in it. Any other use would show identities, and breaks."""

    cls = dict

    def __init__(self, copier: _Copier) -> None:
        self.copier = copier

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        key = t.look(key)
        if not (isinstance(key, TokenValue) and key.make is id):
            super().setitem(t, key, value)
        assert isinstance(key, TokenValue)
        self.copier.memo[id(t.look(key.of[0]))] = t.look(value)


class _Copier:
    def __init__(self, t: Tracer, deep: bool) -> None:
        self.t = t
        self.deep = deep
        self.memo: dict[int, Value] = {}

    def part(self, value: Value) -> Value:
        return self.copy(self.t.look(value)) if self.deep else value

    def copy(self, value: Value) -> Value:
        if isinstance(value, ConstValue | FunctionValue | BuiltinValue | ClassValue):
            return value
        if id(value) in self.memo:
            return self.memo[id(value)]
        is_instance = isinstance(value, ObjectValue) and not isinstance(value, ModuleValue)
        new = self._object(value) if is_instance else value.copied(self)
        if new is not value:  # otherwise it is copied again the next time
            self.memo[id(value)] = new
        return new

    def _object(self, value: ObjectValue) -> Value:
        t = self.t
        name = "__deepcopy__" if self.deep else "__copy__"
        if isinstance(value.special(name), FunctionType):
            copied = value.call_special(t, name, *([MemoValue(self)] if self.deep else []))
            assert copied is not None
            return copied
        self.check_class(value)
        # The module reads the class, so the metaclass may have it, too.
        asked = (class_attribute(cls, name) for cls in (value.cls, type(value.cls)))
        if value.payload is not None or any(attribute is not MISSING for attribute in asked):
            raise Break("library_call", f"copy of {value.describe()}")
        check_finalizer(value.cls)
        table = AttributesValue(value).entries(t)
        if class_attribute(value.cls, "__getattr__") is not MISSING or not {
            name,
            "__reduce_ex__",
        }.isdisjoint(
            table
        ):  # the module reads it from the object itself, and `__setstate__` from the new one
            raise Break(
                "library_call", f"copy of {value.describe()}, which is asked for what it lacks"
            )
        result = self.memo[id(value)] = ObjectValue(value.cls)
        for key, item in table.values():
            result.attributes[key.constant()] = self.part(item)
        return result

    def check_class(self, value: Value) -> None:
        """Breaks if the class is not copied by its instances' items or attributes."""
        cls = value.type()
        registered = self.t.pinned(copyreg.dispatch_table)
        assert isinstance(registered, DictValue)
        if registered.get(self.t, self.t.pinned(cls)) is not None or (
            not isinstance(value, TupleValue)  # its class has no special methods of its own
            and any(
                class_attribute(cls, name) is not class_attribute(object, name) for name in CUSTOM
            )
        ):
            raise Break("library_call", f"copy of {value.describe()}")
