"""`copy.copy` and `copy.deepcopy` of containers, constants and plain Python objects.

Classes that say themselves how they are copied, modules and tensors are left to Python.  Registers with `builtins.FUNCTIONS`.
"""

from __future__ import annotations

import copy
from types import FunctionType
from typing import TYPE_CHECKING

from frameloom.capture.builtins import Args, Kwargs, knows
from frameloom.capture.classes import check_finalizer
from frameloom.capture.values.attributes import AttributesValue
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.container import ListValue, TupleValue
from frameloom.capture.values.dictionary import DefaultDictValue, DictValue
from frameloom.capture.values.function import BuiltinValue, FunctionValue
from frameloom.capture.values.module import ModuleValue
from frameloom.capture.values.object import MISSING, ObjectValue, class_attribute
from frameloom.capture.values.sets import SetValue, set_of
from frameloom.capture.values.static import ClassValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.tracer import Tracer

CUSTOM = (
    "__copy__",
    "__deepcopy__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
    "__slots__",
)


@knows(copy.copy, least=1, most=1)
def _copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _Copier(t, deep=False).copy(t.look(args[0]))


@knows(copy.deepcopy, least=1, most=1)
def _deepcopy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        raise Break("library_call", "copy.deepcopy(x, memo)")
    return _Copier(t, deep=True).copy(t.look(args[0]))


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
        if id(value) not in self.memo:
            self.memo[id(value)] = value  # for the error message of a cycle through a tuple
            self.memo[id(value)] = self._new(value)
        return self.memo[id(value)]

    def _new(self, value: Value) -> Value:
        t = self.t
        if isinstance(value, TupleValue):
            items = [self.part(item) for item in value.items]
            unchanged = all(new is t.look(old) for new, old in zip(items, value.items, strict=True))
            return value if unchanged or not self.deep else TupleValue(items, value.cls)
        if isinstance(value, ListValue):
            result = self.memo[id(value)] = value.like([])
            result.items = [self.part(item) for item in value.items]
            return result
        if isinstance(value, SetValue) and value.cls is frozenset and not self.deep:
            return value
        if isinstance(value, SetValue):
            return set_of(t, value.cls, [self.part(item) for item in value.order()])
        if isinstance(value, AttributesValue):
            value = value.table(t)
        if isinstance(value, DictValue):
            table = self.memo[id(value)] = (
                value.empty() if isinstance(value, DefaultDictValue) else DictValue(cls=value.cls)
            )
            for key, item in list(value.entries(t).values()):
                table.setitem(t, self.part(key), self.part(item))
            return table
        if isinstance(value, ObjectValue) and not isinstance(value, ModuleValue):
            return self._object(value)
        raise Break("library_call", f"copy of {value.describe()}")

    def _object(self, value: ObjectValue) -> Value:
        if isinstance(value.special("__deepcopy__" if self.deep else "__copy__"), FunctionType):
            found = (
                value.call_special(self.t, "__deepcopy__", DictValue())
                if self.deep
                else value.call_special(self.t, "__copy__")
            )
            assert found is not None
            return found
        for name in CUSTOM:
            found = class_attribute(value.cls, name)
            if found is not MISSING and found is not class_attribute(object, name):
                raise Break("library_call", f"copy of {value.describe()}")
        if value.payload is not None:
            raise Break("library_call", f"copy of {value.describe()}")
        check_finalizer(value.cls)
        result = self.memo[id(value)] = ObjectValue(value.cls)
        for key, item in AttributesValue(value).table(self.t).entries(self.t).values():
            result.attributes[key.constant()] = self.part(item)
        return result
