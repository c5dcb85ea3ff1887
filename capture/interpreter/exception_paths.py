"""What an exception that comes out of the graph would meet in the program on its way: handlers, `finally` blocks, context managers.

In: the frame in which an operation is recorded that may raise depending on data.  Out: whether code of the program would run, which a graph cannot do.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING

from frameloom.capture.bytecode.instruction import Handler, Instr
from frameloom.capture.interpreter.policy import is_torchs
from frameloom.capture.values.base import Value
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue, FunctionValue
from frameloom.capture.values.object import ObjectValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import Frame
    from frameloom.capture.interpreter.tracer import Tracer

RAISED = (
    IndexError,
    RuntimeError,
    ValueError,
    AssertionError,
)  # by PyTorch, because of what tensors hold


def is_caught(frame: Frame | None) -> bool:
    """Whether the program would handle an exception raised in that frame, or do something on its way."""
    while frame is not None and frame.at.handler is None:  # most often all of them
        frame = frame.parent
    return any(_meets_code(*met) for met in _handlers(frame))


def leaves_settings_changed(t: Tracer) -> bool:
    """Whether an exception raised here would leave PyTorch's settings otherwise than they were when the call began: what blocks that were
    entered since put back is as it was."""
    if not t.settings.start:
        return False
    blocks = [b for frame, handler in _handlers(t.frame) if (b := _block(frame, handler))]
    return t.settings.would_differ([t.look(b.owner) for b in blocks])


def _handlers(frame: Frame | None) -> Iterator[tuple[Frame, Handler]]:
    """What an exception raised in that frame meets, innermost first."""
    while frame is not None:
        handler = frame.at.handler
        while handler is not None:
            yield frame, handler
            handler = _next_handler(frame.instrs, handler.target)
        frame = frame.parent


def _block(frame: Frame, handler: Handler) -> BoundMethodValue | None:
    """How the context manager is left that this handler leaves."""
    at = handler.target.index
    if [ins.op for ins in frame.instrs[at : at + 2]] != ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
        return None
    leave = frame.stack[handler.depth - 1]
    return leave if isinstance(leave, BoundMethodValue) else None


def _meets_code(frame: Frame, handler: Handler) -> bool:
    instrs, at = frame.instrs, handler.target.index
    if instrs[at].op != "PUSH_EXC_INFO":
        return False  # it only puts variables back, as behind an inlined comprehension
    if instrs[at + 1].op == "WITH_EXCEPT_START":
        return not _lets_pass(frame.stack[handler.depth - 1])
    if _is_clause(instrs, at + 1):
        return _has_clause_for(frame, at + 1)
    return not is_torchs(frame.globals.real)  # finally: there it puts settings back


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
            return False  # no clause was left
        if instrs[at].op != "CHECK_EXC_MATCH" or not all(_is_other(frame, ins) for ins in named):
            return True
        at += 1
        while instrs[at].target is None:
            at += 1
        at = instrs[at].target.index


def _is_other(frame: Frame, ins: Instr) -> bool:
    """Whether what is loaded is a builtin exception that is none of those raised here."""
    if ins.op == "BUILD_TUPLE":
        return True
    cls = getattr(builtins, str(ins.arg), None)
    if ins.op != "LOAD_GLOBAL" or ins.arg in frame.globals.real or not isinstance(cls, type):
        return False
    return not any(issubclass(raised, cls) for raised in RAISED)


def _next_handler(instrs: list[Instr], target: Instr) -> Handler | None:
    """The one around that to which the exception goes on: that of where it is raised again, past the clean-up of the handler itself."""
    for ins in instrs[target.index :]:
        if ins.op == "RERAISE":
            handler = ins.handler
            if handler is not None and instrs[handler.target.index].op == "COPY":
                continue  # the clean-up, which raises it again, too
            return handler
    return None


def _lets_pass(leave: Value) -> bool:
    """Whether leaving a context manager by an exception neither ends that nor does anything that is seen behind it.  One that was entered
    before the call was really entered, and what that did stays where nobody leaves it."""
    if not isinstance(leave, BoundMethodValue) or leave.origin is not None:
        return False
    func, owner = leave.func, leave.owner
    if isinstance(func, BuiltinValue):
        return True
    if not isinstance(func, FunctionValue):
        return False
    generator = owner.attributes.get("gen") if isinstance(owner, ObjectValue) else None
    function = getattr(generator, "function", func)  # that of a `contextmanager`
    real = function.real if isinstance(function, FunctionValue) else None
    return real is not None and is_torchs(real.__globals__)
