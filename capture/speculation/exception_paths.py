"""Finds the handlers, `finally` blocks and context managers that an exception from the graph would run.

In: the frame that records an operation which may raise depending on data. Out: whether code of the program
would run, which a graph cannot do.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING

from frameloom.capture.bytecode.instruction import Handler, Instr
from frameloom.capture.values.base import Value
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue, FunctionValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.policy import is_torchs

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import Frame
    from frameloom.capture.interpreter.tracer import Tracer

RAISED = (
    IndexError,
    RuntimeError,
    ValueError,
    AssertionError,
)  # the exceptions that PyTorch raises because of tensor data


def is_caught(frame: Frame | None) -> bool:
    """Whether the program would handle an exception raised in that frame, or run code while it propagates."""
    while frame is not None and frame.at.handler is None:  # most often this skips all frames
        frame = frame.parent
    return any(_meets_code(*met) for met in _handlers(frame))


def leaves_settings_changed(t: Tracer) -> bool:
    """Whether an exception raised here would leave PyTorch's settings different from those at the start of
    the call. Blocks that were entered since then restore their settings."""
    if not t.settings.start:
        return False
    blocks = [b for frame, handler in _handlers(t.frame) if (b := _block(frame, handler))]
    return t.settings.would_differ([t.look(b.owner) for b in blocks])


def _handlers(frame: Frame | None) -> Iterator[tuple[Frame, Handler]]:
    """Yields the handlers that an exception raised in that frame reaches, innermost first."""
    while frame is not None:
        handler = frame.at.handler
        while handler is not None:
            yield frame, handler
            handler = _next_handler(frame.instrs, handler.target)
        frame = frame.parent


def _block(frame: Frame, handler: Handler) -> BoundMethodValue | None:
    """Returns the exit method of the context manager whose `with` block this handler ends; None for other
    handlers."""
    at = handler.target.index
    if [ins.op for ins in frame.instrs[at : at + 2]] != ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
        return None
    leave = frame.stack[handler.depth - 1]
    return leave if isinstance(leave, BoundMethodValue) else None


def _meets_code(frame: Frame, handler: Handler) -> bool:
    instrs, at = frame.instrs, handler.target.index
    if instrs[at].op != "PUSH_EXC_INFO":
        return False  # it only restores variables, as after an inlined comprehension
    if instrs[at + 1].op == "WITH_EXCEPT_START":
        return not _lets_pass(frame.stack[handler.depth - 1])
    if _is_clause(instrs, at + 1):
        return _has_clause_for(frame, at + 1)
    return not is_torchs(frame.globals.real)  # finally: in PyTorch's code it only restores settings


def _is_clause(instrs: list[Instr], at: int) -> bool:
    if instrs[at].op == "POP_TOP":
        return True
    while instrs[at].op.startswith(("LOAD_", "BUILD_TUPLE")):
        at += 1
    return instrs[at].op in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH")


def _has_clause_for(frame: Frame, at: int) -> bool:
    instrs = frame.instrs
    while True:
        named = []
        while instrs[at].op.startswith(("LOAD_", "BUILD_TUPLE")):
            named.append(instrs[at])
            at += 1
        if instrs[at].op in ("RERAISE", "COPY", "SWAP"):
            return False  # no clause is left
        if instrs[at].op != "CHECK_EXC_MATCH" or not all(_is_other(frame, ins) for ins in named):
            return True
        at += 1
        while instrs[at].target is None:
            at += 1
        at = instrs[at].target.index


def _is_other(frame: Frame, ins: Instr) -> bool:
    """Whether the instruction loads a built-in exception class that matches none of `RAISED`."""
    if ins.op == "BUILD_TUPLE":
        return True
    cls = getattr(builtins, str(ins.arg), None)
    if ins.op != "LOAD_GLOBAL" or ins.arg in frame.globals.real or not isinstance(cls, type):
        return False
    return not any(issubclass(raised, cls) for raised in RAISED)


def _next_handler(instrs: list[Instr], target: Instr) -> Handler | None:
    """Returns the outer handler that gets the exception next: the one that covers the instruction which
    raises it again. The clean-up code of the handler itself is skipped."""
    for ins in instrs[target.index :]:
        if ins.op == "RERAISE":
            handler = ins.handler
            if handler is not None and instrs[handler.target.index].op == "COPY":
                continue  # the clean-up code, which raises it again, too
            return handler
    return None


def _lets_pass(leave: Value) -> bool:
    """Whether a context manager lets an exception pass and has no visible effect when it is left. If it was
    entered before the call, its effects are real and remain unless it is really left."""
    if not isinstance(leave, BoundMethodValue) or leave.origin is not None:
        return False
    func, owner = leave.func, leave.owner
    if isinstance(func, BuiltinValue):
        return True
    if not isinstance(func, FunctionValue):
        return False
    generator = owner.attributes.get("gen") if isinstance(owner, ObjectValue) else None
    function = getattr(generator, "function", func)  # the one behind a `contextmanager`
    real = function.real if isinstance(function, FunctionValue) else None
    return real is not None and is_torchs(real.__globals__)
