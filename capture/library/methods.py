"""Methods of strings, generators and the grad-mode managers, called on values.

In: the method as found in the built-in class, and its arguments with the instance first. Registers with
`builtins.FUNCTIONS`.
"""

from __future__ import annotations

import sys
from types import GeneratorType
from typing import TYPE_CHECKING

import torch

from frameloom.capture.guards.raw_attributes import instance_dict
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Known, Kwargs, knows
from frameloom.capture.interpreter.context_managers import OUTER
from frameloom.capture.interpreter.generator import GeneratorValue
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import NONE
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.exception import (
    CallersExceptionValue,
    ExceptionValue,
    TracebackValue,
)
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.static import GradModeValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

# --- strings, generators, context managers


@knows(str.join, least=2, most=2)
def _join(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.evaluate(str.join, [args[0], t.tuple_of(args[1])], {})


def _generator(t: Tracer, args: Args) -> GeneratorValue:
    value = t.look(args[0])
    if not isinstance(value, GeneratorValue):
        raise Break("generator", f"method of {value.describe()}")
    return value


@knows(GeneratorType.send, least=2, most=2)
def _send(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.look(_generator(t, args).send(t, args[1]))


@knows(GeneratorType.__next__, least=1, most=1)
def _generator_next(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.look(_generator(t, args).send(t, NONE))


@knows(GeneratorType.close, least=1, most=1)
def _close(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    _generator(t, args).close(t)


@knows(GeneratorType.throw, least=2, most=4)
def _throw(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Captures `throw(value)`, or `throw(type, value, traceback)` if all three belong to one exception."""
    from frameloom.capture.interpreter.opcodes.exceptions import exception_of
    from frameloom.capture.interpreter.opcodes.jumps import is_none

    given = [t.look(arg) for arg in args[1:]]
    thrown = given[0] if len(given) == 1 or is_none(given[1]) else given[1]
    return t.look(_generator(t, args).throw(t, Raised(exception_of(t.frame, thrown))))


@knows(sys.exc_info)
def _exc_info(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Outside of any captured handler, the exception is the one that the caller handles."""
    if not t.handling:
        return TupleValue([CallersExceptionValue(part) for part in range(3)])
    value = t.handling[-1].value
    assert isinstance(value, ExceptionValue)
    return TupleValue([t.pinned(value.cls), value, TracebackValue(value)])


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
