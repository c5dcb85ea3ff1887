"""Methods of strings, generators, exceptions and the grad-mode managers, called on values.

In: the method as found in the built-in class, and its arguments with the instance first.
"""

from __future__ import annotations

import sys
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING

import torch

from frameloom.capture.guards.raw_attributes import instance_dict
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Known, Kwargs, knows
from frameloom.capture.interpreter.context_managers import OUTER
from frameloom.capture.interpreter.generator import CoroutineValue, GeneratorValue, SuspendableValue
from frameloom.capture.interpreter.opcodes.exceptions import exception_of
from frameloom.capture.library.builtins import method
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import NONE, is_none
from frameloom.capture.values.containers.container import ListValue, TupleValue
from frameloom.capture.values.exception import (
    NATIVE_INITS,
    CallersExceptionValue,
    ExceptionValue,
    TracebackValue,
)
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.static import GradModeValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


@knows(str.join, least=2, most=2)
def _join(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.evaluate(str.join, [args[0], t.tuple_of(args[1])], {})


for _value, _cls in ((GeneratorValue, GeneratorType), (CoroutineValue, CoroutineType)):
    method(_value, _cls.send)(_value.send)
    method(_value, _cls.close)(_value.close)


@method(GeneratorValue, GeneratorType.__next__)
def _generator_next(own: GeneratorValue, t: Tracer) -> Value:
    return own.send(t, NONE)


@method(GeneratorValue, GeneratorType.throw)
@method(CoroutineValue, CoroutineType.throw)
def _throw(
    own: SuspendableValue, t: Tracer, kind: Value, value: Value = NONE, traceback: Value = NONE
) -> Value:
    """Captures `throw(value)`, or `throw(type, value, traceback)` if all three belong to one exception."""
    thrown = kind if is_none(t.look(value)) else value
    return own.throw(t, Raised(exception_of(t.frame, t.look(thrown))))


def _exception(t: Tracer, args: Args) -> ExceptionValue:
    value = t.look(args[0])
    if not isinstance(value, ExceptionValue):
        raise Break("exception", f"method of {value.describe()}")
    return value


@knows(*NATIVE_INITS, least=1)
def _init(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    _exception(t, args).set_args(t, args[1:])


@knows(BaseException.add_note, least=2, most=2)
def _add_note(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    own, note = _exception(t, args), t.look(args[1])
    if note.type() is not str:
        t.raise_unworded(TypeError, "add_note(...) of what is no string")
    if "__notes__" not in own.attributes:
        own.setattr(t, "__notes__", ListValue([]))
    notes = own.getattr(t, "__notes__")
    if not isinstance(notes, ListValue):
        raise Break("exception", "add_note(...)")
    notes.append(t, note)


@knows(sys.exc_info)
def _exc_info(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return TupleValue(_handled(t))


@knows(sys.exception)
def _exception_now(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _handled(t)[1]


def _handled(t: Tracer) -> list[Value]:
    """Returns the three values of `sys.exc_info()`. Outside of any captured handler, the exception is the one
    that the caller handles."""
    if not t.handling:
        return [CallersExceptionValue(part) for part in range(3)]
    value = t.handling[-1].value
    assert isinstance(value, ExceptionValue)
    return [t.pinned(value.cls), value, TracebackValue(value)]


def _method_of_mode(name: str) -> Known:
    """Returns the rule for a manager made by this capture; one from before the call is an ordinary Python
    object."""

    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        value = t.look(args[0])
        if isinstance(value, GradModeValue):
            return value.enter(t) if name == "__enter__" else value.exit(t)
        function = getattr(value.type(), name)
        if name == "__exit__" and isinstance(value, ObjectValue) and _was_entered(value):
            return _leave_inference_mode(t, value)
        if not isinstance(value, ObjectValue) or value.cls is not torch.autocast:
            raise Break("context_manager", f"{value.describe()} entered before")
        return t.look(interpret(t, function, args, kwargs))

    return handler


def _was_entered(value: ObjectValue) -> bool:
    return OUTER in (instance_dict(value.real) or ())


def _leave_inference_mode(t: Tracer, value: ObjectValue) -> Value:
    """Leaves an inference mode that new code entered; that code stored the previous state."""
    outer = value.find(t, OUTER)
    assert isinstance(outer, TupleValue)
    for part in outer.items:
        t.look(part)
    real = value.real
    t.settings.turn(
        t,
        value,
        False,
        lambda: torch.inference_mode.__exit__(real, None, None, None),
        lambda: torch.inference_mode.__enter__(real),
    )
    return NONE


for _cls in GradModeValue.CLASSES:
    for _name in ("__enter__", "__exit__"):
        FUNCTIONS[getattr(_cls, _name)] = _method_of_mode(_name)
