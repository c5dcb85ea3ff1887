"""Functions that work on functions: functools, operator, inspect, typing."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import types
import typing
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import MISSING, class_attribute, is_subtype
from frameloom.capture.interpreter import operators
from frameloom.capture.interpreter.call_rules import Args, Known, Kwargs, knows, knows_of_values
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import BoundMethodValue, FunctionValue, PartialValue
from frameloom.capture.values.getter import GetterValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


# --- functions that work on functions


@knows(functools.partial, least=1, keywords="*")
def _partial(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function = t.look(args[0])
    if isinstance(function, PartialValue):
        return PartialValue(
            function.func, [*function.args, *args[1:]], {**function.kwargs, **kwargs}
        )
    if class_attribute(function.type(), "__call__") is MISSING:
        t.raise_(TypeError, "the first argument must be callable")
    return PartialValue(function, args[1:], kwargs)


@knows(functools.reduce, least=2, most=3)
def _reduce(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = t.each(args[1])
    result = args[2] if len(args) > 2 else next(items, None)
    if result is None:
        t.raise_(TypeError, "reduce() of empty iterable with no initial value")
    for item in items:
        result = t.call(t.look(args[0]), [result, item], {})
    return t.look(result)


@knows(operator.call, least=1, keywords="*")
def _call(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.look(t.call(t.look(args[0]), args[1:], kwargs))


@knows(math.prod, least=1, most=1, keywords="start")
def _prod(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    total = kwargs.get("start", ConstValue(1))
    for item in t.each(args[0]):
        total = operators.binary(t, operator.mul, total, item)
    return t.look(total)


@knows(math.fsum, least=1, most=1)
def _fsum(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.evaluate(math.fsum, [t.tuple_of(args[0])], {})


@knows(inspect.signature, least=1, most=1)
def _signature(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    is_bound = isinstance(value, BoundMethodValue)
    if isinstance(value, BoundMethodValue):
        value = t.look(value.func)
    if not isinstance(value, FunctionValue):
        raise Break("library_call", "inspect.signature(...)")
    function = value.real if value.real is not None else _plainly_made(t, value)
    if value.real is not None:
        _keep_signature(t, value)
    asked: Any = types.MethodType(function, function) if is_bound else function
    try:
        return ConstValue(inspect.signature(asked))
    except ValueError as error:  # it has no parameter for the bound object
        raise Break("library_call", "inspect.signature(...)") from error


def _plainly_made(t: Tracer, value: FunctionValue) -> types.FunctionType:
    """Returns a function with the signature of one that the captured code made, if its code has all of the
    signature."""
    made = value.made
    if made.defaults or made.kwdefaults or made.special or made.attributes.entries(t):
        raise Break("library_call", "inspect.signature(...)")
    cells = tuple(types.CellType() for _ in made.code.co_freevars)
    return types.FunctionType(made.code, {}, closure=cells)


def _keep_signature(t: Tracer, value: FunctionValue) -> None:
    """Adds guards for every part of a signature, which holds these very objects."""
    function, own = value.real, value._own(t)
    if not {"__signature__", "__wrapped__"}.isdisjoint(vars(function)):
        raise Break("library_call", "inspect.signature(...)")
    for name in ("__signature__", "__wrapped__"):
        t.guards.add(own.child("dict"), "no_key", name)
    t.guards.add(own, "is", function)
    t.guards.add(own.child("func_code"), "is", function.__code__)
    for part in ("defaults", "kwdefaults"):
        t.guards.add(own.child(f"func_{part}"), "is", getattr(function, f"__{part}__"))
    for name, default in (function.__kwdefaults__ or {}).items():
        t.guards.add(own.child("func_kwdefaults").child("key", name), "is", default)
    annotations = value.getattr(t, "__annotations__")
    if not isinstance(annotations, DictValue) or annotations.origin is None:
        raise Break("library_call", "inspect.signature(...)")
    annotations.entries(t)
    for name, annotation in function.__annotations__.items():
        t.guards.add(annotations.origin.child("key", name), "is", annotation)


def _has_flag(flag: int) -> Known:
    """Returns the rule that asks whether a function's code has the flag."""

    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
        value = t.look(args[0])
        while isinstance(value, BoundMethodValue | PartialValue):
            value = t.look(value.func)
        return isinstance(value, FunctionValue) and bool(value.code.co_flags & flag)

    return rule


knows(inspect.isgeneratorfunction, least=1, most=1)(_has_flag(inspect.CO_GENERATOR))
knows(inspect.isasyncgenfunction, least=1, most=1)(_has_flag(inspect.CO_ASYNC_GENERATOR))


def _is_instance(cls: type) -> Any:
    return lambda t, value: issubclass(t.look(value).type(), cls)


for _fn, _cls in {
    inspect.isclass: type,
    inspect.isfunction: types.FunctionType,
    inspect.ismethod: types.MethodType,
    inspect.ismodule: types.ModuleType,
    inspect.isbuiltin: types.BuiltinFunctionType,
    inspect.isgenerator: types.GeneratorType,
    inspect.iscoroutine: types.CoroutineType,
    inspect.isasyncgen: types.AsyncGeneratorType,
    inspect.iscode: types.CodeType,
    inspect.istraceback: types.TracebackType,
}.items():
    knows_of_values(_fn)(_is_instance(_cls))


def _getter(cls: type, kind: str, named: int | None) -> Known:
    """Returns the rule for a getter. `named`: how many of the first arguments are names of a `kind`; all if
    None."""

    def made(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if not all(is_subtype(t.look(name).type(), str) for name in args[:named]):
            t.raise_(TypeError, f"{kind} name must be a string")
        return GetterValue(cls, args, kwargs)

    return made


knows(operator.attrgetter, least=1)(_getter(operator.attrgetter, "attribute", None))
knows(operator.itemgetter, least=1)(_getter(operator.itemgetter, "item", 0))
knows(operator.methodcaller, least=1, keywords="*")(_getter(operator.methodcaller, "method", 1))


def _unary(fn: Any, special: str) -> Known:
    return lambda t, args, kwargs: operators.unary(t, fn, special, args[0])


for _fn, _special in ((operator.neg, "__neg__"), (operator.pos, "__pos__"), (operator.invert, "__invert__"), (operator.inv, "__invert__"), (operator.abs, "__abs__"), (abs, "__abs__")):  # fmt: skip
    knows(_fn, least=1, most=1)(_unary(_fn, _special))


def _index(t: Tracer, value: Value) -> Value:
    number = t.look(value)
    return number if number.type() is int else t.evaluate(operator.index, [number], {})


def _concatenated(fn: Any) -> Any:
    """Returns the rule for `concat` or `iconcat`, which refuse what is not a sequence."""

    def rule(t: Tracer, own: Value, other: Value) -> Value:
        if not all(t.look(value).type() in (list, tuple) for value in (own, other)):
            raise Break("unknown_call", f"concat of {t.look(own).describe()}")
        return operators.binary(t, fn, own, other)

    return rule


for _fn, _rule in {
    operator.index: _index,
    operator.iconcat: _concatenated(operator.iadd),
    operator.truth: lambda t, value: t.look(value).truth(t),
    operator.not_: lambda t, value: not t.look(value).truth(t),
    operator.is_: lambda t, one, other: t.identical(one, other),
    operator.is_not: lambda t, one, other: not t.identical(one, other),
    operator.contains: lambda t, own, item: t.look(own).contains(t, t.look(item)),
    operator.getitem: lambda t, own, key: t.look(own).getitem(t, t.look(key)),
    operator.setitem: lambda t, own, key, value: t.look(own).setitem(t, t.look(key), value),
    operator.delitem: lambda t, own, key: t.look(own).delitem(t, t.look(key)),
    types.MethodType: lambda t, function, owner: BoundMethodValue(t.look(function), owner),
    typing.cast: lambda t, cls, value: t.look(value),
}.items():
    knows_of_values(_fn)(_rule)
