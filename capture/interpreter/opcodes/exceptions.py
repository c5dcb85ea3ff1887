"""Raising, handling and `with`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.class_lookup import MISSING, is_subtype
from frameloom.capture.interpreter import calls
from frameloom.capture.interpreter.context_managers import enter_device
from frameloom.capture.interpreter.opcodes.jumps import is_none
from frameloom.capture.interpreter.opcodes.registry import handles
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import NONE, ConstValue, boolean
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.exception import ExceptionValue, TracebackValue
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.static import ClassValue, GradModeValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame


@handles("RAISE_VARARGS")
def raise_varargs(frame: Frame, ins: Instr) -> None:
    """Raises an exception. If no captured frame handles it, the capture ends here and the program raises."""
    t = frame.t
    if ins.arg == 0:
        if not t.handling:
            raise Break("exception", "raise")
        raise t.handling[-1]
    cause = frame.pop() if ins.arg == 2 else None
    value = exception_of(frame, frame.pop())
    if cause is not None:
        value.set_cause(t, cause if is_none(cause) else exception_of(frame, cause))
    raise Raised(value)


def exception_of(frame: Frame, value: Value) -> ExceptionValue:
    """Returns the exception that `raise` makes of an exception or an exception class."""
    if isinstance(value, ClassValue) and issubclass(value.real, BaseException):
        value = calls.call(frame.t, value, [], {})
    if not isinstance(value, ExceptionValue):
        raise Break("exception", f"raise {value.describe()}")
    return value


@handles("PUSH_EXC_INFO")
def push_exc_info(frame: Frame, ins: Instr) -> None:
    """Begins a handler. Code that only cleans up and raises again does not begin with this."""
    value: Any = frame.pop_raw()
    frame.t.handling.append(value.raised)
    frame.push(NONE)  # the exception handled before; only POP_EXCEPT reads it
    frame.push(value)


@handles("CHECK_EXC_MATCH")
def check_exc_match(frame: Frame, ins: Instr) -> None:
    wanted, value = frame.pop(), frame.t.look(frame.stack[-1])
    if not isinstance(value, ExceptionValue):
        raise Break("exception", "except")
    classes = wanted.items if isinstance(wanted, TupleValue) else [wanted]
    reals = [frame.t.look(cls).real for cls in classes]
    if not all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in reals):
        raise Break("exception", "except with what is no exception")
    # Like CPython: no metaclass is called, so virtual subclasses do not count.
    frame.push(boolean(any(is_subtype(value.cls, cls) for cls in reals)))


@handles("POP_EXCEPT")
def pop_except(frame: Frame, ins: Instr) -> None:
    if not frame.t.handling:
        raise Break("exception", "the end of a handler entered before")
    frame.pop_raw()
    frame.t.handling.pop()


@handles("RERAISE")
def reraise(frame: Frame, ins: Instr) -> None:
    value = frame.pop()
    if not isinstance(value, ExceptionValue):
        raise Break("exception", "raise again")
    raise value.raised or Raised(value)


@handles("BEFORE_WITH")
def before_with(frame: Frame, ins: Instr) -> None:
    manager = frame.pop()
    if isinstance(manager, GradModeValue):
        cls: Any = manager.cls
        frame.push(BoundMethodValue(BuiltinValue(cls.__exit__), manager))
        frame.push(manager.enter(frame.t))
        return
    if isinstance(manager, ConstValue) and type(manager.real) is torch.device:
        frame.push(BoundMethodValue(BuiltinValue(torch.device.__exit__), manager))
        frame.push(enter_device(frame.t, manager))
        return
    if not isinstance(manager, ObjectValue) or manager.special("__enter__") is MISSING:
        raise Break("context_manager", f"with {manager.describe()}")
    leave = exit_function(frame, manager, "__exit__")
    result = manager.call_special(frame.t, "__enter__")
    assert result is not None
    frame.push(leave)
    frame.push(result)


def exit_function(frame: Frame, manager: ObjectValue, name: str) -> BoundMethodValue:
    """Returns the bound method that leaves the block."""
    method = manager.special(name)
    if method is MISSING:
        raise Break("context_manager", f"with {manager.describe()}")
    return BoundMethodValue(frame.t.class_function(manager.cls, name, method), manager)


@handles("WITH_EXCEPT_START")
def with_except_start(frame: Frame, ins: Instr) -> None:
    """Calls `__exit__` with an exception; the stack is [exit, lasti, previous, exception]."""
    value, leave = frame.t.look(frame.stack[-1]), frame.t.look(frame.stack[-4])
    if not isinstance(value, ExceptionValue):
        raise Break("exception", "an exception leaves a with block")
    args = [frame.t.pinned(value.cls), value, TracebackValue(value)]
    frame.push(calls.call(frame.t, leave, args, {}))
