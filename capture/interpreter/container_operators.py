"""Operators of containers and their views, also of instances of subclasses.

In: operator and operands, at least one a container. Out: the result; None if no rule fits, and then the
caller tries other rules. The operators of each container are in its own file.
"""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.opcodes import IN_PLACE
from frameloom.capture.guards.class_lookup import is_subtype
from frameloom.capture.interpreter.mappings import fill_dict
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import SequenceValue
from frameloom.capture.values.containers.dictionary import DictValue, ViewValue
from frameloom.capture.values.containers.sets import SetValue, view_operator
from frameloom.capture.values.object import ObjectValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

Operator = Callable[[Any, Any], Any]


def container_operator(t: Tracer, fn: Operator, left: Value, right: Value) -> Value | None:
    in_place = fn in IN_PLACE
    plain = IN_PLACE[fn][1] if in_place else fn
    own, other = _held(left), _held(right)
    if in_place and own.operate_in_place(t, plain, other if isinstance(own, SetValue) else right):
        return left
    if plain is operator.mul and isinstance(own, SequenceValue):
        return None if isinstance(other, SequenceValue) else own.repeated(t, other)
    if plain is operator.mul and isinstance(other, SequenceValue):
        return other.repeated(t, own)
    if plain is operator.or_ and isinstance(own, DictValue):
        if in_place:
            fill_dict(t, left, [right], {})  # it takes the same sources as `dict.update`
            return left
        return _union(t, own, left, other, right) if isinstance(other, DictValue) else None
    if plain is operator.mod and isinstance(left, ConstValue) and isinstance(left.real, str):
        return t.evaluate(operator.mod, [left, right], {})
    if isinstance(own, ViewValue):
        return view_operator(t, plain, own, other)
    return own.operator(t, plain, other)


def _held(value: Value) -> Value:
    """Returns the built-in container inside an instance of a subclass of list, tuple or dict."""
    if isinstance(value, ObjectValue) and value.payload is not None:
        return value.payload
    return value


def _union(t: Tracer, own: DictValue, left: Value, other: DictValue, right: Value) -> Value:
    result = _united(own, other)
    fill_dict(t, result, [left], {})
    fill_dict(t, result, [right], {})
    return result


def _united(left: DictValue, right: DictValue) -> Value:
    """Returns the empty dictionary that `left | right` fills. It has the class whose `__or__` runs: that of
    `right` if it is a subclass of the class of `left`, else that of `left`."""
    is_asked_first = right.cls is not left.cls and is_subtype(right.cls, left.cls)
    own = right if is_asked_first and right.cls.__or__ is not left.cls.__or__ else left
    if own.cls.__or__ is dict.__or__:
        return DictValue()
    if own.cls in (OrderedDict, defaultdict):
        return own.empty()
    raise Break("opaque_object", f"{left.describe()} | {right.describe()}")  # calls the class
