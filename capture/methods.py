"""Methods of strings, generators and the grad-mode managers, called on values.

In: the method as found in the builtin class, and its arguments with the instance first.  Registers with `builtins.FUNCTIONS`.
"""

from __future__ import annotations

import collections
from types import GeneratorType
from typing import TYPE_CHECKING

from frameloom.capture.builtins import (
    FUNCTIONS,
    Args,
    Kwargs,
    knows,
)
from frameloom.capture.generator import GeneratorValue
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE
from frameloom.capture.values.static import GradModeValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.tracer import Tracer

OrderedDict = collections.OrderedDict


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
def _close(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _generator(t, args)
    return NONE


def _grad_mode(t: Tracer, args: Args) -> GradModeValue:
    value = t.look(args[0])
    if not isinstance(value, GradModeValue):
        raise Break("context_manager", f"{value.describe()} entered before")
    return value


for _cls in GradModeValue.CLASSES:
    FUNCTIONS[_cls.__enter__] = lambda t, args, kwargs: _grad_mode(t, args).enter(t)
    FUNCTIONS[_cls.__exit__] = lambda t, args, kwargs: _grad_mode(t, args).exit(t)
