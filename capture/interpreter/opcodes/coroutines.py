"""`await`, `async with` and `async for` in coroutines that the captured code drives itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.guards.class_lookup import MISSING
from frameloom.capture.interpreter.generator import (
    AsyncGeneratorValue,
    AsyncStep,
    CoroutineValue,
    GeneratorValue,
    YieldedValue,
)
from frameloom.capture.interpreter.opcodes.exceptions import exit_function
from frameloom.capture.interpreter.opcodes.registry import handles
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import NONE
from frameloom.capture.values.containers.iterator import IteratorValue
from frameloom.capture.values.exception import ExceptionValue
from frameloom.capture.values.object import ObjectValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame


@handles("GET_AWAITABLE")
def get_awaitable(frame: Frame, ins: Instr) -> None:
    frame.push(awaitable(frame, frame.pop()))


def awaitable(frame: Frame, value: Value) -> Value:
    """Returns the iterator that `await` runs."""
    if isinstance(value, CoroutineValue):
        if not value.finished and value.delegate(frame.t) is not None:
            raise Break("coroutine", f"await {value.describe()}, which is awaited already")
        return value
    if isinstance(value, AsyncStep) or (isinstance(value, GeneratorValue) and value.is_awaitable):
        return value
    if isinstance(value, ObjectValue) and value.special("__await__") is not MISSING:
        result = frame.t.look(value.call_special(frame.t, "__await__"))
        if isinstance(result, IteratorValue) and not (
            isinstance(result, GeneratorValue) and result.is_awaitable
        ):
            return result
    raise Break("coroutine", f"await {value.describe()}")


@handles("CLEANUP_THROW")
def cleanup_throw(frame: Frame, ins: Instr) -> None:
    """Continues after an exception that was thrown into a `yield from` or an `await` has come out of it; the
    stack is [iterator, value sent last, exception]. Python 3.12 and later have it."""
    value = frame.pop()
    if not isinstance(value, ExceptionValue):
        raise Break("exception", "an exception thrown into a generator")
    if not issubclass(value.cls, StopIteration):
        raise value.raised or Raised(value)
    frame.pop_many(2)
    frame.push(NONE)
    frame.push(value.getattr(frame.t, "value"))


@handles("BEFORE_ASYNC_WITH")
def before_async_with(frame: Frame, ins: Instr) -> None:
    manager = frame.pop()
    if not isinstance(manager, ObjectValue) or manager.special("__aenter__") is MISSING:
        raise Break("context_manager", f"async with {manager.describe()}")
    leave = exit_function(frame, manager, "__aexit__")
    frame.push(leave)
    frame.push(frame.t.look(manager.call_special(frame.t, "__aenter__")))


@handles("GET_AITER")
def get_aiter(frame: Frame, ins: Instr) -> None:
    value = frame.pop()
    if isinstance(value, ObjectValue) and value.special("__aiter__") is not MISSING:
        value = frame.t.look(value.call_special(frame.t, "__aiter__"))
    if not _has_next(value):
        raise Break("coroutine", f"async for over {value.describe()}")
    frame.push(value)


def _has_next(value: Value) -> bool:
    if isinstance(value, ObjectValue):
        return value.special("__anext__") is not MISSING
    return isinstance(value, AsyncGeneratorValue)


@handles("GET_ANEXT")
def get_anext(frame: Frame, ins: Instr) -> None:
    iterator = frame.t.look(frame.stack[-1])
    if isinstance(iterator, AsyncGeneratorValue):
        frame.push(AsyncStep(iterator))
        return
    assert isinstance(iterator, ObjectValue)
    step = frame.t.look(iterator.call_special(frame.t, "__anext__"))
    frame.push(awaitable(frame, step))


@handles("END_ASYNC_FOR")
def end_async_for(frame: Frame, ins: Instr) -> None:
    """Ends the loop if its iterator raised StopAsyncIteration; the stack is [iterator, exception]."""
    value = frame.pop()
    if not isinstance(value, ExceptionValue):
        raise Break("exception", "the end of async for")
    if not issubclass(value.cls, StopAsyncIteration):
        raise value.raised or Raised(value)
    frame.pop_raw()


@handles("ASYNC_GEN_WRAP")
def async_gen_wrap(frame: Frame, ins: Instr) -> None:
    frame.push(YieldedValue(frame.pop_raw()))
