"""Generators that the captured code starts and uses up itself.

The generator's frame is interpreted step by step. A started generator cannot be rebuilt after a break. If
it must survive one, the place where it was made is captured again with a break there (`Session.avoid`).
"""

from __future__ import annotations

import builtins
from types import CodeType, GeneratorType
from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.opcodes import PY312
from frameloom.capture.values.base import Raised, Value, ignoring
from frameloom.capture.values.const import NONE, ConstValue, is_none
from frameloom.capture.values.containers.iterator import IteratorValue
from frameloom.capture.values.exception import ExceptionValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.function import FunctionValue


def _reraise(instrs: list[Instr], start: Instr, names: dict[str, Any] | None) -> Instr | None:
    """Returns the instruction at which a handler raises GeneratorExit again, if only `except` clauses for
    built-in exceptions come before it; None otherwise."""
    at = start.index
    while instrs[at].op in ("PUSH_EXC_INFO", "COPY", "POP_EXCEPT"):
        at += 1
    while instrs[at].op == "LOAD_GLOBAL":
        name = instrs[at].arg
        cls = getattr(builtins, str(name), None)
        jump = instrs[at + 2]
        if (
            names is None
            or name in names
            or not (isinstance(cls, type) and issubclass(cls, Exception))
            or instrs[at + 1].op != "CHECK_EXC_MATCH"
            or "IF_FALSE" not in jump.op
            or jump.target is None
        ):
            return None
        at = jump.target.index
    return instrs[at] if instrs[at].op == "RERAISE" else None


class GeneratorValue(IteratorValue):
    cls = GeneratorType

    def __init__(
        self,
        frame: Frame,
        function: FunctionValue,
        args: list[Value],
        kwargs: dict[str, Value],
        site: tuple[CodeType, int],
    ) -> None:
        self.frame = frame
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.site = site
        self.started = False
        self.finished = False
        self.running = False
        self.handling: list[Raised] = []  # exceptions that its active handlers handle

    def describe(self) -> str:
        return f"generator {self.function.name}"

    def step(self, t: Tracer) -> Value | None:
        with ignoring(StopIteration):
            return self.send(t, NONE)
        return None

    def send(self, t: Tracer, value: Value) -> Value:
        """Runs to the next yield; raises the program's StopIteration at the end."""
        self._enter(t)
        if self.finished:
            t.raise_(StopIteration)
        if self.started:
            self.frame.stack.append(value)
        elif not is_none(t.look(value)):
            t.raise_(TypeError, "can't send non-None value to a just-started generator")
        self.started = True
        return self._run(t, None)

    def _enter(self, t: Tracer) -> None:
        if self.running:
            t.raise_(ValueError, "generator already executing")
        t.change(self)

    def throw(self, t: Tracer, raised: Raised) -> Value:
        """Raises an exception at the generator's current yield and runs on."""
        self._enter(t)
        if self.finished or not self.started:
            self.finished = True
            raise raised
        if (inner := self._delegate(t)) is None:
            self.frame.at = self.frame.instrs[self.frame.at.index - 1]  # the yield
            return self._run(t, raised)
        if not isinstance(inner, GeneratorValue):
            raise Break("generator", "throw(...) into yield from an iterator")
        try:
            if not raised.is_a(GeneratorExit):
                return inner.throw(t, raised)
            inner.close(t)
            raise raised
        except Raised as answer:
            frame = self.frame
            send = next(i for i in reversed(frame.instrs[: frame.at.index]) if i.op == "SEND")
            if not answer.is_a(StopIteration):
                frame.at = frame.instrs[frame.at.index - 1]
                return self._run(t, answer)
            frame.at = finish_send(frame, send, answer.value.getattr(t, "value"))
            return self._run(t, None)

    def close(self, t: Tracer) -> None:
        self._enter(t)
        if self.finished or not self.started:
            self.finished = True
            return
        try:
            self.throw(t, Raised(ExceptionValue(GeneratorExit, [])))
        except Raised as raised:
            if not raised.is_a(GeneratorExit, StopIteration):
                raise
        else:
            t.raise_(RuntimeError, "generator ignored GeneratorExit")

    def _delegate(self, t: Tracer) -> Value | None:
        """Returns the inner iterator if the generator waits in a `yield from`."""
        at = self.frame.at
        is_delegating = at.op == "RESUME" and at.arg & 3 == 2
        return t.look(self.frame.stack[-1]) if is_delegating else None

    def _run(self, t: Tracer, thrown: Raised | None) -> Value:
        """Runs the frame with the generator's own stack of exceptions that are being handled."""
        depth = len(t.handling)
        t.handling += self.handling
        self.running = True
        try:
            result = self.frame.run(thrown)
        except Raised as raised:
            self.finished = True
            if raised.is_a(StopIteration):
                stopped = ExceptionValue(
                    RuntimeError, [ConstValue("generator raised StopIteration")]
                )
                stopped.set_cause(t, raised.value)
                raise Raised(stopped) from None
            raise
        finally:
            self.running = False
            self.handling = t.handling[depth:]
            del t.handling[depth:]
        if self.frame.suspended:
            return result
        self.finished = True
        if is_none(t.look(result)):
            t.raise_(StopIteration)
        t.raise_value(StopIteration, [result])

    @property
    def would_clean_up(self) -> bool:
        """Whether the suspended generator would run code if it were dropped: a `finally`, an `except` or a
        `with` around its yield."""
        if not self.started or self.finished:
            return False
        names = self.function.real.__globals__ if self.function.real is not None else None
        at: Instr | None = self.frame.instrs[self.frame.at.index - 1]
        while at is not None and at.handler is not None:
            target = self.frame.instrs[at.handler.target.index]
            if target.op == "CALL_INTRINSIC_1":
                return False
            if (
                target.op == "CLEANUP_THROW"
            ):  # of `yield from`; its inner generator is checked separately
                at = target
                continue
            at = _reraise(self.frame.instrs, target, names)
            if at is None:
                return True
        return False

    def getattr(self, t: Tracer, name: str) -> Value:
        if name in ("send", "throw", "close", "__next__", "__iter__"):
            return t.instance_attribute(self, name)
        raise Break("generator", f"generator.{name}")

    def snapshot(self) -> Any:
        frame = self.frame
        return (
            self.started,
            self.finished,
            frame.at,
            list(frame.stack),
            dict(frame.slots),
            frame.suspended,
            list(self.handling),
        )

    def restore(self, saved: Any) -> None:
        frame = self.frame
        self.started, self.finished, frame.at, frame.stack, frame.slots, frame.suspended = saved[
            :-1
        ]
        self.handling = saved[-1]

    def parts(self) -> list[Value]:
        return [self.function, *self.args, *self.kwargs.values()]

    def check_rebuild(self) -> None:
        if self.started and not self.finished:
            raise Avoid(self.site)

    def rebuild(self, r: Rebuilder) -> None:
        if self.finished:
            r.code.call_const(exhausted)
            return
        r.code.emit("PUSH_NULL")
        r.load(self.function)
        r.load_all([*self.args, *self.kwargs.values()])
        if self.kwargs:
            r.code.emit("KW_NAMES", tuple(self.kwargs))
        r.code.call(len(self.args) + len(self.kwargs))


def exhausted() -> Any:
    """Called from new code: returns a generator that has ended."""
    generator = (nothing for nothing in ())
    next(generator, None)
    return generator


def finish_send(frame: Frame, ins: Instr, result: Value) -> Instr | None:
    """Ends a `yield from` with the result of the inner generator, which is popped from the stack."""
    if not PY312:
        frame.pop_raw()  # 3.12 keeps the iterator for END_SEND
    frame.push(result)
    return ins.target
