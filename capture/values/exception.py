"""Exceptions that the interpreted program makes and raises.

An exception is an instance of its class with arguments, attributes and a cause. Raising sets its traceback
and its context. So plain Python must raise an exception that is used after the capture (`check_rebuild`).
"""

from __future__ import annotations

import builtins
import sys
from types import CodeType, GetSetDescriptorType, MemberDescriptorType, TracebackType
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import HEAP_TYPE, class_attribute
from frameloom.capture.guards.raw_attributes import set_attributes
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE, ConstValue
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.object import ObjectValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


class ExceptionValue(ObjectValue):
    """An exception. `args` are unknown if only Python knows the text; then `what` describes the error."""

    mutable = ("attributes", "_args", "cause")

    def __init__(self, cls: type, args: list[Value] | None, what: str = "") -> None:
        super().__init__(cls)
        self._args = args
        self.what = what
        self.cause: Value = NONE
        self.site: tuple[CodeType, int] | None = None  # where it was raised, if it was
        self.raised: Any = None  # the last Raised that carried it

    @property
    def args(self) -> list[Value]:
        if self._args is None:
            raise Break("exception", self.what)
        return self._args

    def raised_at(self, t: Tracer, site: tuple[CodeType, int]) -> None:
        before = self.site
        t.on_undo(lambda: setattr(self, "site", before))
        self.site = site

    def describe(self) -> str:
        if self._args is None:
            return f"{self.cls.__name__}: {self.what}"
        shown = ", ".join(
            a.describe()
            for a in self._args
            if getattr(a, "realized", a) is not None and type(a).__name__ != "LazyValue"
        )
        return f"{self.cls.__name__}({shown})"

    # --- attributes
    def getattr(self, t: Tracer, name: str) -> Value:
        if name == "args":
            return TupleValue(list(self.args))
        if name == "__cause__":
            return self.cause
        if name == "value" and self.cls is StopIteration:
            return t.look(self.args[0]) if self.args else NONE
        self._refuse_native(name, "attribute")
        return super().getattr(t, name)

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        if name == "__traceback__" and isinstance(t.look(value), TracebackValue):
            return  # it was not read, and reading it makes Python raise the exception
        self._refuse_native(name, "attribute_write")
        super().setattr(t, name, value)

    def _refuse_native(self, name: str, kind: str) -> None:
        """Breaks for what the exception stores in C: its context, its traceback, the fields of an OSError."""
        attribute = class_attribute(self.cls, name)
        is_slot = isinstance(attribute, MemberDescriptorType | GetSetDescriptorType)
        if is_slot and not attribute.__objclass__.__flags__ & HEAP_TYPE and name != "__class__":
            raise Break(kind, f"{self.cls.__name__}.{name}")

    def set_args(self, t: Tracer, args: list[Value]) -> None:
        t.change(self)
        self._args = args

    def set_cause(self, t: Tracer, cause: Value) -> None:
        t.change(self)
        self.cause = cause

    # --- the end of a capture
    def parts(self) -> list[Value]:
        return [*(self._args or ()), *super().parts(), self.cause]

    def check_rebuild(self) -> None:
        if self.site is not None:
            raise Avoid(self.site)

    def rebuild(self, r: Rebuilder) -> None:
        r.call(make_exception, self.cls, self.args)
        r.keep(self)
        if self.attributes:
            r.do(set_attributes, self, tuple(self.attributes), [*self.attributes.values()])
        if not isinstance(self.cause, ConstValue):  # whether None was set cannot be seen
            r.store_attribute("__cause__", self.cause)


def make_exception(cls: Any, args: tuple[Any, ...]) -> Any:
    """Called from new code: makes an exception whose own `__init__` was already interpreted."""
    if cls.__init__ in NATIVE_INITS or not is_simple(cls):
        return cls(*args)
    made = BaseException.__new__(cls, *args)
    made.args = args
    return made


def is_simple(cls: type) -> bool:
    """Whether instances store nothing in C except what every exception stores."""
    native = next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)
    return native.__basicsize__ == BaseException.__basicsize__


def takes_anything(cls: type, count: int) -> bool:
    """Whether the class accepts any `count` arguments: other classes check them, or choose another class by
    them."""
    native = next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)
    return (
        is_simple(cls) or native in KEEPS_ANYTHING or (count < 2 and issubclass(native, KEEPS_ONE))
    )


KEEPS_ANYTHING = (StopIteration, SystemExit, AttributeError, NameError, UnboundLocalError, ImportError, ModuleNotFoundError)  # fmt: skip
KEEPS_ONE = (OSError, SyntaxError)


def _native_inits() -> dict[Any, None]:
    return {
        cls.__init__: None
        for cls in vars(builtins).values()
        if isinstance(cls, type) and issubclass(cls, BaseException) and is_simple(cls)
    }


NATIVE_INITS = _native_inits()  # a table of slot wrappers, in order


class TracebackValue(Value):
    """The traceback of an exception that is being handled; reading it breaks."""

    cls = TracebackType
    is_true = True

    def __init__(self, of: ExceptionValue) -> None:
        self.of = of

    def check_rebuild(self) -> None:
        self.of.check_rebuild()


class CallersExceptionValue(Value):
    """One of the three values of `sys.exc_info()` outside of any captured handler: they are the caller's, and
    stay the same during the call."""

    def __init__(self, part: int) -> None:
        self.part = part

    def type(self) -> type:
        raise Break("exception", "sys.exc_info()")

    def rebuild(self, r: Rebuilder) -> None:
        r.code.call_const(sys.exc_info)
        r.code.subscript(self.part)
