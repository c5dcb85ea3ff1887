"""Functions and iterators of the standard library written in C, rewritten in Python to be interpreted.

`in_python(fn)` registers a Python function that is interpreted where the program calls `fn`.
`iterator(cls)` does the same for a class of iterators: its attributes are the state, `__next__` is one
step, and `left` returns, in plain Python, an iterator of the real class with the remaining items; it takes
the attributes in the order in which `__init__` sets them. No frame
of this code is ever resumed: if it breaks, plain Python makes the program's own call.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.values.base import Value, ignoring
from frameloom.capture.values.containers.iterator import IteratorValue
from frameloom.capture.values.object import ObjectValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


def in_python(*names: Any) -> Callable[[Any], Any]:
    """Decorator: the function is interpreted in place of these."""

    def register(function: FunctionType) -> FunctionType:
        for name in names:
            FUNCTIONS[name] = lambda t, args, kwargs: t.look(interpret(t, function, args, kwargs))
        return function

    return register


def iterator(real: Any, *makers: Any) -> Callable[[Any], Any]:
    """Class decorator: instances replace iterators of the class `real`; `makers` (or `real`) make them."""

    def register(cls: Any) -> Any:
        cls.real_class = real

        def make(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
            frame = t.frame
            while not frame.resumable and frame.parent is not None:
                frame = frame.parent  # out of our own code, to the program's call
            site = (frame.code, frame.at.index)
            if t.session.is_avoided(*site):
                raise Break(
                    "opaque_iterable", f"{real.__name__}(...) is used on both sides of a break"
                )
            state = ObjectValue(cls)
            interpret(t, cls.__init__, [state, *args], kwargs)
            return PolyfillIterator(cls, state, site)

        for maker in (cls, *(makers or (real,))):
            FUNCTIONS[maker] = make
        return cls

    return register


class PolyfillIterator(IteratorValue):
    def __init__(self, cls: Any, state: ObjectValue, site: Any) -> None:
        self.cls = cls
        self.state = state
        self.site = site

    def type(self) -> type:
        real_class: type = self.cls.real_class
        return real_class

    def step(self, t: Tracer) -> Value | None:
        with ignoring(StopIteration):
            return t.look(interpret(t, self.cls.__next__, [self.state], {}))
        return None

    def parts(self) -> list[Value]:
        return list(self.state.attributes.values())

    def check_rebuild(self) -> None:
        if not hasattr(self.cls, "left"):
            raise Avoid(self.site)

    def rebuild(self, r: Rebuilder) -> None:
        r.call(self.cls.left, *self.state.attributes.values())
