"""Text made of objects: `str`, `repr`, `ascii`, `format`, `"..." % obj` and `str.format`.

Values that are not constants go to Python's own formatting as a `StandIn`. It interprets the object's
methods when they are called, so they run in Python's order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import (
    MISSING,
    asks_program,
    class_attribute,
    has_programs_methods,
)
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Known, Kwargs, knows
from frameloom.capture.values.base import NotConstant, Raised, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import ListValue, TupleValue, make_tuple, plain
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.exception import ExceptionValue
from frameloom.capture.values.function import BuiltinValue
from frameloom.capture.values.object import ObjectValue, boxed
from frameloom.capture.values.policy import OPS
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.capture.values.text import TensorTextValue
from frameloom.errors import Avoid, Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

WORDED_IN_C = (OSError, SyntaxError, UnicodeError, ImportError, BaseExceptionGroup)


class ShowsTensor(Exception):
    """The text would show a tensor's data."""


class StandIn:
    """The object that Python's formatting gets for `value`."""

    def __init__(self, shown: Shown, value: Value) -> None:
        self._shown = shown
        self._value = value

    def _text(self, function: Any, *args: Value) -> str:
        if isinstance(self._value, TensorValue | TensorTextValue):
            raise ShowsTensor
        t = self._shown.t
        text = t.look(t.call_builtin(function, [self._value, *args], {}))
        if isinstance(text, TensorTextValue):
            raise ShowsTensor
        return text.constant()  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return self._text(str)

    def __repr__(self) -> str:
        return self._text(repr)

    def __format__(self, spec: str) -> str:
        return self._text(format, ConstValue(spec))

    def __getattr__(self, name: str) -> Any:
        return self._shown.of(self._value.getattr(self._shown.t, name))


class MappingStandIn(StandIn):
    """For an object with `__getitem__`, which `%` treats as a mapping."""

    def __getitem__(self, key: Any) -> Any:
        t = self._shown.t
        return self._shown.of(self._value.getitem(t, t.from_python(key)))


def has_own_text(value: Value) -> bool:
    """Whether code of the program makes the text of a constant or a class."""
    is_known = isinstance(value, ConstValue | ClassValue) or boxed(value) is not None
    return is_known and asks_program(value.type(), ("__str__", "__repr__", "__format__"))


class Shown:
    """Prepares objects for Python's formatting; `stand_ins`: how many of them are not constants."""

    def __init__(self, t: Tracer) -> None:
        self.t = t
        self.stand_ins = 0

    def of(self, value: Value, inside: tuple[Value, ...] = ()) -> Any:
        """Returns the object itself if it is constant, a container of prepared items, or a stand-in."""
        t = self.t
        value = t.look(value)
        if any(value is outer for outer in inside):
            raise Break("unknown_call", f"the text of a {value.describe()} that contains itself")
        within = (*inside, value)
        if isinstance(value, TupleValue):
            items = [self.of(item, within) for item in value.items]
            return tuple(items) if value.cls is tuple else make_tuple(value.cls, items)
        if isinstance(value, ListValue) and value.type() is list:
            return [self.of(item, within) for item in value.items]
        if isinstance(value, DictValue) and value.cls is dict:
            pairs = value.entries(t).values()
            return {self.of(key, within): self.of(item, within) for key, item in pairs}
        if not has_own_text(value):
            if (inside := boxed(value)) is not None and not has_programs_methods(value.type()):
                return inside.real
            if isinstance(value, ClassValue):
                for name in ("__module__", "__qualname__"):  # its text is made of these
                    value.getattr(t, name)
            try:
                return plain(value)
            except NotConstant:
                pass
        self.stand_ins += 1
        has_items = class_attribute(value.type(), "__getitem__") is not MISSING
        return (MappingStandIn if has_items else StandIn)(self, value)


def formatted(t: Tracer, fn: Callable[..., Any], args: Args, kwargs: Kwargs | None = None) -> Value:
    """Formats at once. Errors inside Python's formatting would name the stand-ins, so they break, and Python
    itself raises them."""
    shown = Shown(t)
    given = [shown.of(arg) for arg in args]
    named = {name: shown.of(arg) for name, arg in (kwargs or {}).items()}
    try:
        return ConstValue(fn(*given, **named))
    except ShowsTensor:
        return TensorTextValue(t.site_or(Break("item", "text that shows a tensor's data")))
    except (Break, Skip, Avoid, Raised):
        raise
    except Exception as error:
        if shown.stand_ins:
            raise Break("unknown_call", f"{getattr(fn, '__name__', fn)}(...)") from None
        return t.raise_(type(error), *error.args)


@knows(str.format, least=1, keywords="*")
def _str_format(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return formatted(t, str.format, args, kwargs)


@knows(str.format_map, least=2, most=2)
def _str_format_map(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return formatted(t, str.format_map, args)


@knows(str.__mod__, least=2, most=2)
def _remainder(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Captures `"..." % right`."""
    return formatted(t, operator.mod, args)


# --- one object


def _exception_text(t: Tracer, value: ExceptionValue, special: str) -> Value:
    """Returns the text that BaseException and KeyError make of their arguments; breaks for classes with their
    own fields in C."""
    base: Any = KeyError if issubclass(value.cls, KeyError) else BaseException
    if issubclass(value.cls, WORDED_IN_C):
        raise Break("exception", f"{special} of {value.describe()}")
    if special == "__str__":
        return formatted(t, lambda *args: str(base(*args)), value.args)
    name = value.cls.__name__
    return formatted(
        t, lambda *args: repr(BaseException(*args)).replace("BaseException", name, 1), value.args
    )


def _text(special: str, convert: Callable[..., Any]) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        value = t.look(args[0]) if args else None
        if isinstance(value, ExceptionValue) and value.special(special) is MISSING:
            return _exception_text(t, value, special)
        if value is not None and has_own_text(value):
            method = class_attribute(value.type(), special)
            if isinstance(method, FunctionType):
                return t.look(t.call_method(value.type(), special, [value]))
        if isinstance(value, BuiltinValue) and isinstance(value.real, OPS):
            return ConstValue(convert(value.real))
        if isinstance(value, ObjectValue):
            result = value.call_special(t, special)
            if result is None and special == "__str__" and not issubclass(value.cls, str):
                result = value.call_special(t, "__repr__")
            if result is not None:
                if result.type() is not str:
                    t.raise_unworded(TypeError, f"{special} of {value.describe()}")
                return result
        has_parts = isinstance(value, TupleValue | ListValue | DictValue | ClassValue)
        if has_parts and len(args) == 1 and not kwargs:
            return formatted(t, convert, args)
        return t.evaluate(convert, args, kwargs)

    return handler


FUNCTIONS[str] = _text("__str__", str)
FUNCTIONS[repr] = _text("__repr__", repr)


@knows(ascii, least=1, most=1)
def _ascii(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.evaluate(lambda text: ascii(_Text(text)), [t.call_builtin(repr, args, {})], {})


class _Text:
    """An object whose `repr` is a given text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _checked(t: Tracer, text: Value) -> Value:
    """Checks the result of a `__format__` of the program."""
    if not issubclass(text.type(), str):
        t.raise_(TypeError, f"__format__ must return a str, not {text.type().__name__}")
    return text


@knows(format, least=1, most=2)
def _format(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    spec = t.look(args[1]).constant() if len(args) > 1 else ""
    if isinstance(value, ObjectValue):
        custom_text = value.call_special(t, "__format__", ConstValue(spec))
        if custom_text is not None:
            return _checked(t, custom_text)
    if (inside := boxed(value)) is not None:
        return (
            t.evaluate(format, [inside, *args[1:]], {})
            if spec
            else t.call_builtin(str, [value], {})
        )
    if has_own_text(value):
        written = class_attribute(value.type(), "__format__")
        if not isinstance(written, FunctionType):
            raise Break("unknown_call", f"format({value.describe()})")
        text = t.call_method(value.type(), "__format__", [value, ConstValue(spec)])
        return _checked(t, t.look(text))
    if isinstance(value, ObjectValue | TupleValue | ListValue | DictValue | ExceptionValue):
        if class_attribute(value.type(), "__format__") is not object.__format__:
            raise Break("unknown_call", f"format({value.describe()})")
        if not spec:
            return t.call_builtin(str, [value], {})
        text = f"unsupported format string passed to {value.type().__name__}.__format__"
        t.raise_(TypeError, text)
    return t.evaluate(format, args, kwargs)
