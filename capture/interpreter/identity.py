"""Compares two values: whether they are the same object, whether they are equal, and `isinstance`.

In: a Tracer and the values. Out: the answer, with guards if it could differ in a later call; a break if the
capture cannot know it.
"""

from __future__ import annotations

import abc
import operator
import types
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.class_lookup import (
    MISSING,
    asks_program,
    class_attribute,
    is_subtype,
    note_order,
)
from frameloom.capture.interpreter import operators
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import BY_VALUE, ConstValue
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.function import BuiltinValue, FunctionValue
from frameloom.capture.values.numbers.symbolic import hint_of, is_symbolic
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.opaque import OpaqueValue
from frameloom.capture.values.static import ClassValue, PyModuleValue
from frameloom.capture.values.subclass import SubclassValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def same_or_equal(t: Tracer, a: Value, b: Value) -> bool:
    """Returns `a is b or a == b`, the test of `in` and `list.index`."""
    a, b = t.look(a), t.look(b)
    if a is b or (_may_differ_from_itself(a, b) and identical(t, a, b)):
        return True
    return operators.binary(t, operator.eq, a, b).truth(t)


def _may_differ_from_itself(a: Value, b: Value) -> bool:
    """Whether the identity of the two matters, because neither may equal itself: its class defines `__eq__`,
    or it is NaN."""
    return _are_nan(a, b) or (_compares_itself(a) and _compares_itself(b))


def _compares_itself(value: Value) -> bool:
    if isinstance(value, ConstValue | ClassValue):
        return asks_program(value.type(), ("__eq__",))
    return isinstance(value, ObjectValue) and isinstance(
        class_attribute(value.cls, "__eq__"), FunctionType
    )


def _are_nan(a: Value, b: Value) -> bool:
    """Whether both are NaN and so differ from themselves; then their identity matters. Specializes a dynamic
    number that is compared with NaN."""
    if not isinstance(a, ConstValue) or not isinstance(b, ConstValue):
        return False
    if a.type() is not b.type() or a.type() not in (float, complex):
        return False
    if hint_of(a) == hint_of(a) and hint_of(b) == hint_of(b):
        return False
    return bool(a.real != a.real and b.real != b.real)


def identical(t: Tracer, a: Value, b: Value) -> bool:
    """Whether `a is b`."""
    a, b = t.look(a), t.look(b)
    if isinstance(a, TensorValue) and isinstance(b, TensorValue):
        plain = (v.fake for v in (a, b) if isinstance(v.fake, Fake))
        t.recorder.layout_assumptions.compared(*plain)
    if a is b:
        return True
    if isinstance(a, ConstValue) and isinstance(b, ConstValue):
        return a.type() is b.type() and _same_constant(a, b)
    if isinstance(a, ClassValue | PyModuleValue | BuiltinValue) and type(a) is type(b):
        return a.real is b.real
    if (
        isinstance(a, TupleValue)
        and isinstance(b, TupleValue)
        and a.cls is b.cls is tuple
        and not (a.items or b.items)
    ):
        return True  # there is only one empty tuple
    if a.type() is not b.type() or a.origin is None or b.origin is None:
        return False
    if isinstance(a, FunctionValue) and a.real is b.real:  # guarded by their code alone
        t.guards.add(a.origin, "same", b.origin)
        return True
    if isinstance(a.real, object) and a.real is b.real:
        raise Break("identity", f"{a.describe()} is {b.describe()}")
    t.guards.add(a.origin, "different", b.origin)
    return False


def _same_constant(a: ConstValue, b: ConstValue) -> bool:
    """Numbers and strings are guarded by value. Whether equal ones are the same object is known only if
    Python has only one such object."""
    if type(a.real) is not type(b.real) or type(a.real) not in BY_VALUE:
        return a.real is b.real
    if a.real != b.real and not (a.real != a.real and b.real != b.real):
        return False
    if type(a.real) is int and -5 <= a.real <= 256:
        return True
    if type(a.real) in (str, bytes) and not a.real:
        return True
    raise Break("identity", f"{a.describe()} is {b.describe()}")


def is_instance(t: Tracer, value: Value, classes: Value) -> bool:
    value, classes = t.look(value), t.look(classes)
    if isinstance(classes, TupleValue):
        return any(is_instance(t, value, item) for item in classes.items)
    wanted = classes.real
    if not issubclass(type(wanted), type | types.UnionType):  # `isinstance` may run code
        raise Break("unknown_call", "isinstance(...)")
    check = class_attribute(type(wanted), "__instancecheck__")
    if isinstance(check, FunctionType) and check.__module__.partition(".")[0] not in (
        "abc",
        "torch",
        "typing",
        "enum",
    ):
        raise Break("unknown_call", f"isinstance(..., {wanted.__name__})")
    try:
        answer = _is_instance(t, value, wanted)
        note_bases(t, value.type(), wanted)
        return answer
    except TypeError as error:
        t.raise_(TypeError, *error.args)


def note_bases(t: Tracer, cls: type, wanted: Any) -> None:
    """Guards the base classes of `cls`, and the answers of the abstract classes among `wanted` about it."""
    note_order(cls)
    for one in (
        getattr(wanted, "__args__", (wanted,)) if not isinstance(wanted, type) else (wanted,)
    ):
        if isinstance(one, abc.ABCMeta):
            t.guards.subclass(cls, one, abc.ABCMeta.__subclasscheck__(one, cls))
            # The names that its __subclasshook__ is likely to look up.
            for name in one.__abstractmethods__:
                class_attribute(cls, name)


def _is_instance(t: Tracer, value: Value, wanted: Any) -> bool:
    if isinstance(value, ObjectValue | OpaqueValue) and computes_class(value.type()):
        if type(wanted) is type and issubclass(value.type(), wanted):
            return True
        raise Break("unknown_call", f"isinstance({value.describe()}, ...)")
    note_questions(t, value, wanted)
    if isinstance(wanted, types.UnionType):
        return any(_is_instance(t, value, cls or type(None)) for cls in wanted.__args__)
    if isinstance(value, TensorValue):
        for cls, mark in MARKS:
            if wanted is cls:
                return is_subtype(value.type(), cls) or _has_mark(t, value, mark)
    if is_symbolic(value):
        return isinstance(hint_of(value), wanted)  # type: ignore[arg-type]
    if isinstance(value, TensorValue | ConstValue) and value.real is not None:
        return isinstance(value.real, wanted)
    if isinstance(value, SubclassValue):
        if not isinstance(wanted, type) or (
            type(wanted).__module__.partition(".")[0] == "torch"
            and not issubclass(wanted, torch.Tensor)
        ):
            raise Break("tensor_subclass", f"isinstance({value.describe()}, ...)")
        return issubclass(value.cls, wanted)
    if isinstance(
        value, TensorValue
    ):  # torch.FloatTensor and similar types test dtype, device and layout
        return isinstance(torch.empty(0, dtype=value.fake.dtype, device=value.fake.device), wanted)
    if isinstance(wanted, type) and type(wanted) is type:
        return issubclass(value.type(), wanted)
    if isinstance(value.real, object) and value.real is not None:
        return isinstance(value.real, wanted)
    return issubclass(value.type(), wanted)


def computes_class(cls: type) -> bool:
    """Whether code of the program computes an instance's `__class__`."""
    own = class_attribute(cls, "__class__"), class_attribute(cls, "__getattribute__")
    return own[0] is not object.__dict__["__class__"] or isinstance(own[1], FunctionType)


# PyTorch's metaclasses recognize a parameter or a buffer by these attributes, too.
MARKS = ((torch.nn.Parameter, "_is_param"), (torch.nn.Buffer, "_is_buffer"))


def _has_mark(t: Tracer, value: TensorValue, name: str) -> bool:
    if (own := value.own(t, name)) is not None:
        return own.truth(t)
    inherited = class_attribute(value.type(), name)
    if inherited is not MISSING and type(inherited) is not bool:
        raise Break("unknown_call", f"isinstance({value.describe()}, ...), which reads {name}")
    return inherited is True


def note_questions(t: Tracer, value: Value, wanted: Any) -> None:
    """Guards what `isinstance(value, wanted)` reads besides the class: marks on tensors, attributes of a protocol."""
    if isinstance(value, TensorValue) and value.origin is not None and value.real is not None:
        for _, name in MARKS:
            if name in value.real.__dict__:
                place = value.origin.child("dict").child("key", name)
                t.look(t.wrap(value.real.__dict__[name], place))
            else:
                t.guards.add(value.origin, "no_attr", name)
    if isinstance(value, ObjectValue) and getattr(wanted, "_is_protocol", False):
        for name in sorted(_names_of_protocol(wanted)):
            attribute = class_attribute(value.cls, name)
            runs_code = isinstance(attribute, property) or (
                attribute is MISSING and class_attribute(value.cls, "__getattr__") is not MISSING
            )
            if name in value.attributes or runs_code:
                raise Break("unknown_call", f"isinstance(..., {wanted.__name__})")
            value.own(t, name)


def _names_of_protocol(protocol: Any) -> set[str]:
    tables = [vars(cls) for cls in protocol.__mro__ if vars(cls).get("_is_protocol")]
    return {str(name) for table in tables for name in {*table, *table.get("__annotations__", ())}}
