"""What `isinstance` reads of an object besides its class: marks on tensors, attributes of a protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import MISSING, class_attribute
from frameloom.capture.values.base import Value
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

# PyTorch's metaclasses recognize a parameter or a buffer by these.
MARKS = ("_is_param", "_is_buffer")


def note_questions(t: Tracer, value: Value, wanted: Any) -> None:
    """Guards what `isinstance(value, wanted)` depends on."""
    if isinstance(value, TensorValue) and value.origin is not None and value.real is not None:
        for name in MARKS:
            if name in value.real.__dict__:
                place = value.origin.child("dict").child("key", name)
                t.look(t.wrap(value.real.__dict__[name], place))
            else:
                t.guards.add(value.origin, "no_attr", name)
    if isinstance(value, ObjectValue) and getattr(wanted, "_is_protocol", False):
        for name in sorted(_names(wanted)):
            attribute = class_attribute(value.cls, name)
            runs_code = isinstance(attribute, property) or (
                attribute is MISSING and class_attribute(value.cls, "__getattr__") is not MISSING
            )
            if name in value.attributes or runs_code:
                raise Break("unknown_call", f"isinstance(..., {wanted.__name__})")
            value.own(t, name)


def _names(protocol: Any) -> set[str]:
    tables = [vars(cls) for cls in protocol.__mro__ if vars(cls).get("_is_protocol")]
    return {str(name) for table in tables for name in {*table, *table.get("__annotations__", ())}}
