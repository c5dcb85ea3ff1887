"""Binds the arguments of a call of a Python function."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, NoReturn

from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import FunctionValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def bind(
    t: Tracer, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]
) -> dict[str, Value]:
    """Returns the arguments by parameter name, bound as in CPython."""
    code = function.code
    count, keyword_only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames[: count + keyword_only]
    slots: dict[str, Value] = dict(zip(names[:count], args, strict=False))
    at = count + keyword_only
    if code.co_flags & inspect.CO_VARARGS:
        slots[code.co_varnames[at]] = TupleValue(list(args[count:]))
        at += 1
    elif len(args) > count:
        wrong_call(t, function)
    rest: DictValue | None = None
    if code.co_flags & inspect.CO_VARKEYWORDS:
        rest = DictValue()
        slots[code.co_varnames[at]] = rest
    for name, value in kwargs.items():
        if name in names[code.co_posonlyargcount :]:
            if name in slots:
                wrong_call(t, function)
            slots[name] = value
        elif rest is not None:
            rest.written[name] = (ConstValue(name), value)
        else:
            wrong_call(t, function)
    _fill_defaults(t, function, slots, names, count)
    return slots


def wrong_call(t: Tracer, function: FunctionValue) -> NoReturn:
    t.raise_unworded(TypeError, f"{function.name}(...) with wrong arguments")


def _fill_defaults(
    t: Tracer, function: FunctionValue, slots: dict[str, Value], names: tuple[str, ...], count: int
) -> None:
    missing = [position for position, name in enumerate(names) if name not in slots]
    if not missing:
        return
    defaults = function.defaults(t)
    for position in missing:
        name = names[position]
        if position < count:
            index = position - (count - len(defaults))
            value = defaults[index] if index >= 0 else None
        else:
            value = function.kwdefault(t, name)
        if value is None:
            wrong_call(t, function)
        slots[name] = value
