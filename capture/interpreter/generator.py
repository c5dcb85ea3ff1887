"""Generators and coroutines that the captured code starts and uses up itself.

Their frames are interpreted step by step. A started generator cannot be rebuilt after a break. If it must
survive one, the place where it was made is captured again with a break there (`Session.avoid`).
"""

from __future__ import annotations

import builtins
import inspect
from types import AsyncGeneratorType, CodeType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from frameloom.capture import _capture
from frameloom.capture.bytecode.opcodes import PY312, PY313
from frameloom.capture.values.base import Raised, Value, ignoring
from frameloom.capture.values.const import NONE, ConstValue, is_none
from frameloom.capture.values.containers.iterator import IteratorValue
from frameloom.capture.values.exception import ExceptionValue
from frameloom.capture.values.identity import identity_key
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


class SuspendableValue(Value):
    """An object that runs a frame in steps: a generator, a coroutine or an asynchronous generator."""

    cls: type
    kind: str  # in messages
    is_true = True
    converted = (StopIteration,)  # exceptions that become a RuntimeError if they leave the frame

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
        return f"{self.kind} {self.function.name}"

    def send(self, t: Tracer, value: Value) -> Value:
        """Runs to the next yield; raises the program's StopIteration at the end."""
        self._enter(t)
        if self.finished:
            self._is_over(t)
        if self.started:
            self.frame.stack.append(value)
        elif not is_none(t.look(value)):
            t.raise_(TypeError, f"can't send non-None value to a just-started {self.kind}")
        self.started = True
        return self._run(t, None)

    def _is_over(self, t: Tracer) -> None:
        """Raises what a step of an object that has ended raises."""
        t.raise_(StopIteration)

    def _enter(self, t: Tracer) -> None:
        if self.running:
            t.raise_(ValueError, f"{self.kind} already executing")
        t.change(self)

    def throw(self, t: Tracer, raised: Raised) -> Value:
        """Raises an exception at the generator's current yield and runs on."""
        self._enter(t)
        if self.finished:
            self._throw_at_end(t)
        if self.finished or not self.started:
            self.finished = True
            raise raised
        if (inner := self.delegate(t)) is None:
            self.frame.at = self.frame.instrs[self.frame.at.index - 1]  # the yield
            return self._run(t, raised)
        if not isinstance(inner, GeneratorValue | CoroutineValue):
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

    def _throw_at_end(self, t: Tracer) -> None:
        """Raises if nothing may be thrown into an object that has ended."""

    def close(self, t: Tracer) -> Value:
        """Since 3.13 the result is what the generator returns when it is closed."""
        self._enter(t)
        if self.finished or not self.started:
            self.finished = True
            return NONE
        try:
            self.throw(t, Raised(ExceptionValue(GeneratorExit, [])))
        except Raised as raised:
            if PY313 and raised.is_a(StopIteration):
                return raised.value.getattr(t, "value")
            if not raised.is_a(GeneratorExit, StopIteration):
                raise
            return NONE
        t.raise_(RuntimeError, f"{self.kind} ignored GeneratorExit")

    def delegate(self, t: Tracer) -> Value | None:
        """Returns the inner iterator if the frame waits in a `yield from` or an `await`."""
        at = self.frame.at
        is_delegating = at.op == "RESUME" and at.arg & 3 in (2, 3)
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
            if raised.is_a(*self.converted):
                text = f"{self.kind} raised {raised.value.cls.__name__}"
                stopped = ExceptionValue(RuntimeError, [ConstValue(text)])
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
        self._return(t, result)
        raise AssertionError("a frame that ends raises")

    def _return(self, t: Tracer, result: Value) -> None:
        """Raises what the end of the frame raises."""
        if is_none(t.look(result)):
            t.raise_(StopIteration)
        t.raise_value(StopIteration, [result])

    @property
    def would_clean_up(self) -> bool:
        """Whether the suspended object would run code if it were dropped: a `finally`, an `except` or a
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

    def key(self, t: Tracer) -> Any:
        return identity_key(t, self)

    def getattr(self, t: Tracer, name: str) -> Value:
        if name in ("send", "throw", "close", "__next__", "__iter__"):
            return t.instance_attribute(self, name)
        raise Break("generator", f"{self.kind}.{name}")

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

    @staticmethod
    def ended() -> Any:
        """Called from new code: returns such an object that has ended."""
        raise NotImplementedError

    def rebuild(self, r: Rebuilder) -> None:
        if self.finished:
            r.code.call_const(self.ended)
            return
        r.code.start_callable()
        r.load(self.function)
        r.code.end_callable()
        r.load_all([*self.args, *self.kwargs.values()])
        r.code.call(len(self.args) + len(self.kwargs), tuple(self.kwargs))


class GeneratorValue(SuspendableValue, IteratorValue):
    cls = GeneratorType
    kind = "generator"

    def step(self, t: Tracer) -> Value | None:
        with ignoring(StopIteration):
            return self.send(t, NONE)
        return None

    @property
    def is_awaitable(self) -> bool:
        """Whether it is a coroutine by `types.coroutine`."""
        return bool(self.frame.code.co_flags & inspect.CO_ITERABLE_COROUTINE)

    @staticmethod
    def ended() -> Any:
        generator = (nothing for nothing in ())
        next(generator, None)
        return generator


class CoroutineValue(SuspendableValue):
    cls = CoroutineType
    kind = "coroutine"

    def _is_over(self, t: Tracer) -> None:
        t.raise_(RuntimeError, "cannot reuse already awaited coroutine")

    _throw_at_end = _is_over

    @property
    def would_clean_up(self) -> bool:
        """Also before it starts: Python warns of a coroutine that was never awaited."""
        return not (self.started or self.finished) or super().would_clean_up

    @staticmethod
    def ended() -> Any:
        async def nothing() -> None: ...

        coroutine = nothing()
        coroutine.close()
        return coroutine


class AsyncGeneratorValue(SuspendableValue):
    """Only `async for` takes its steps; `step` has what one of them does."""

    cls = AsyncGeneratorType
    kind = "async generator"
    converted = (StopIteration, StopAsyncIteration)

    def _is_over(self, t: Tracer) -> None:
        t.raise_(StopAsyncIteration)

    def _return(self, t: Tracer, result: Value) -> None:
        t.raise_(StopAsyncIteration)

    @property
    def would_clean_up(self) -> bool:
        """The event loop finishes one that is dropped between two steps."""
        return self.started and not self.finished

    def getattr(self, t: Tracer, name: str) -> Value:
        raise Break("coroutine", f"{self.kind}.{name}")

    def check_rebuild(self) -> None:
        if self.started:
            raise Avoid(self.site)


class YieldedValue(Value):
    """What an asynchronous generator yields, apart from what its own `await` passes on."""

    def __init__(self, item: Value) -> None:
        self.item = item


class AsyncStep(IteratorValue):
    """The awaitable for the next item of an asynchronous generator. Only `await` sees it."""

    def __init__(self, generator: AsyncGeneratorValue) -> None:
        self.generator = generator

    def describe(self) -> str:
        return f"the next item of {self.generator.describe()}"

    def step(self, t: Tracer) -> Value | None:
        raise Break("coroutine", f"next(...) of {self.describe()}")

    def send(self, t: Tracer, value: Value) -> Value:
        """Runs the generator to its next yield; the item itself is the result of the `await`."""
        result = self.generator.send(t, value)
        if isinstance(result, YieldedValue):
            t.raise_value(StopIteration, [result.item])
        return result


def suspended(
    frame: Frame, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Returns the object that a call of a generator or coroutine function makes."""
    t, flags = frame.t, frame.code.co_flags
    cls: type[SuspendableValue] = GeneratorValue
    if flags & inspect.CO_COROUTINE:
        cls = CoroutineValue
    elif flags & inspect.CO_ASYNC_GENERATOR:
        cls = AsyncGeneratorValue
        if _capture.async_generator_hooks():
            raise Break("coroutine", "an asynchronous generator under an event loop")
        t.guards.returns(_capture.async_generator_hooks, (), False)
    made = cls(
        frame, function, args, kwargs, t.site_or(Break("generator", f"{function.name}(...)"))
    )
    t.generators.append(made)
    t.on_undo(t.generators.pop)
    return made


def finish_send(frame: Frame, ins: Instr, result: Value) -> Instr | None:
    """Ends a `yield from` with the result of the inner generator, which is popped from the stack."""
    if not PY312:
        frame.pop_raw()  # 3.12 keeps the iterator for END_SEND
    frame.push(result)
    return ins.target
