"""Generators that the captured code starts and uses up itself.

The generator's frame is interpreted step by step.  A generator that must survive a break cannot be rebuilt once it has started; then the
place where it was made is remembered and captured again with a break there (`Session.avoid`).
"""

from __future__ import annotations

from types import CodeType, GeneratorType
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Avoid, Raised, Value
from frameloom.capture.values.const import NONE
from frameloom.capture.values.iterator import IteratorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.frame import Frame
    from frameloom.capture.rebuild import Rebuilder
    from frameloom.capture.tracer import Tracer
    from frameloom.capture.values.function import FunctionValue


class GeneratorValue(IteratorValue):
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

    def type(self) -> type:
        return GeneratorType

    def describe(self) -> str:
        return f"generator {self.function.name}"

    def step(self, t: Tracer) -> Value | None:
        try:
            return self.send(t, NONE)
        except Raised as raised:
            if raised.value.is_instance(StopIteration):  # type: ignore[attr-defined]
                return None
            raise

    def send(self, t: Tracer, value: Value) -> Value:
        """Go on to the next yield; raises the program's StopIteration at the end."""
        if self.finished:
            t.raise_(StopIteration)
        t.change(self)
        if self.started:
            self.frame.stack.append(value)
        self.started = True
        try:
            result = self.frame.run()
        except Raised:
            self.finished = True
            raise
        if self.frame.suspended:
            return result
        self.finished = True
        if result is NONE:
            t.raise_(StopIteration)
        t.raise_value(StopIteration, [result])

    def getattr(self, t: Tracer, name: str) -> Value:
        if name == "close" and (self.finished or not self.started):
            return t.instance_attribute(self, name)
        if name in ("send", "__next__", "__iter__"):
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
        )

    def restore(self, saved: Any) -> None:
        frame = self.frame
        self.started, self.finished, frame.at, frame.stack, frame.slots, frame.suspended = saved

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
    """Called from new code: a generator that has ended."""
    generator = (nothing for nothing in ())
    next(generator, None)
    return generator
