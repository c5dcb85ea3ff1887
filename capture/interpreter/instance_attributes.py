"""Attributes of instances of built-in classes."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING

from frameloom.capture.guards.class_lookup import MISSING, class_attribute, name_in_texts, works_as
from frameloom.capture.values.base import Value
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def instance_attribute(t: Tracer, value: Value, name: str) -> Value:
    """Returns an attribute of an instance of a built-in class: a method, or a fact about a constant."""
    attribute = class_attribute(value.type(), name)
    if name == "__class__":
        return t.pinned(value.type())
    if attribute is MISSING:
        return t.raise_no_attribute(f"'{name_in_texts(value.type())}' object", name)
    if isinstance(attribute, FunctionType):
        return BoundMethodValue(t.class_function(value.type(), name, attribute), value)
    if works_as(attribute, property) and attribute.fget is not None:
        return t.call(t.pinned(attribute.fget), [value], {})
    if works_as(attribute, classmethod) and isinstance(attribute.__func__, FunctionType):
        return BoundMethodValue(t.pinned(attribute.__func__), t.pinned(value.type()))
    if type(attribute).__name__ in ("method_descriptor", "wrapper_descriptor"):
        return BoundMethodValue(BuiltinValue(attribute), value)
    if not hasattr(type(attribute), "__get__"):
        origin = t.class_origin(value.type()).child("attr", name)
        return t.look(t.wrap(attribute, origin))
    raise Break("attribute", f"{value.describe()}.{name}")
