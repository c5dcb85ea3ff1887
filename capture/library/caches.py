"""Calls of what `functools.cache` and `lru_cache` made.

What such a function remembers is used as a constant, as long as its cache says so: the guards look the entry up in the cache at each call, so that
clearing it, or dropping the entry for newer ones, is noticed.  A call that the cache cannot answer is made during capture, where the program would
make it too: only if nothing is due before that the function could see, and no older entry has to go for its result.
"""

from __future__ import annotations

import functools
import gc
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.resume.effects import pending
from frameloom.capture.values.base import NotConstant, Value
from frameloom.capture.values.const import LITERALS, ConstValue
from frameloom.capture.values.containers.container import TupleValue, plain
from frameloom.capture.values.object import ObjectValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

Wrapper = functools._lru_cache_wrapper
ABSENT = object()


def cached(t: Tracer, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The result of a call; equal arguments give the same one while the cache has it."""
    try:
        given = tuple(argument(t, arg) for arg in args)
        named = {name: argument(t, value) for name, value in kwargs.items()}
    except NotConstant:
        raise Break("unknown_call", f"{name_of(fn)}(...)") from None
    table, separator = parts_of(fn)
    key = key_of(fn, given, named, separator)
    if not holds(table, key) and (is_full(fn) or pending(t, set())):
        raise Break("cold_cache", f"{name_of(fn)}(...)")
    try:
        result = fn(*given, **named)
    except Exception as error:  # is not remembered
        raise Break("unknown_call", f"{name_of(fn)}(...)") from error
    value = t.from_python(result)
    if not is_constant(t, value) or remembered(fn, table, key) is not result:
        raise Break("unknown_call", f"{name_of(fn)}(...) returns an object")
    guard(t, fn, table, key, result)
    return t.pinned(result) if type(result) is tuple else value  # the same one each time


def argument(t: Tracer, value: Value) -> Any:
    """A constant, or an object that is only equal to itself, which the guards hold."""
    value = t.look(value)
    if isinstance(value, ObjectValue) and value.real is not None and value.origin is not None:
        methods = (class_attribute(value.cls, name) for name in ("__hash__", "__eq__"))
        if tuple(methods) == (object.__hash__, object.__eq__):
            t.guards.add(value.origin, "is", value.real)
            return value.real
    return plain(value)


def guard(t: Tracer, fn: Any, table: dict[Any, Any], key: Any, result: Any) -> None:
    stored = next(known for known in table if known == key)
    place = t.roots.object(table, f"the cache of {name_of(fn)}").child("key", stored)
    if table[stored] is not result:
        t.guards.add(place, "type", type(table[stored]))
        place = place.child("cached")
    t.guards.add(place, "equal" if type(result) in LITERALS else "is", result)


def name_of(fn: Any) -> str:
    return str(getattr(fn, "__name__", "cached function"))


def parts_of(fn: Any) -> tuple[dict[Any, Any], object]:
    """The dictionary of its entries, and what stands between positional and named arguments in their keys."""
    match gc.get_referents(fn)[-6:]:
        case [dict() as table, function, separator, type(), type(), dict()]:
            is_plain = type(separator) is object and not issubclass(type(function), Wrapper)
            remembers = Wrapper.cache_info(fn).maxsize != 0
            if is_plain and remembers and hasattr(fn, "cache_parameters"):
                return table, separator
    raise Break("unknown_call", f"{name_of(fn)}(...)")


def key_of(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], separator: object) -> Any:
    """As CPython's `lru_cache_make_key` makes it."""
    is_typed = fn.cache_parameters()["typed"]
    if not is_typed and not kwargs and len(args) == 1 and type(args[0]) in (int, str):
        return args[0]
    key = args
    for item in kwargs.items():
        key += item if key is not args else (separator, *item)
    if is_typed:
        key += tuple(map(type, (*args, *kwargs.values())))
    return key


def is_full(fn: Any) -> bool:
    """Whether a new entry takes the place of an old one, which this capture may rely on."""
    info = Wrapper.cache_info(fn)
    return info.maxsize is not None and info.currsize >= info.maxsize


def holds(table: dict[Any, Any], key: Any) -> bool:
    try:
        return key in table
    except Exception:  # the call will say what is wrong with its arguments
        return False


def remembered(fn: Any, table: dict[Any, Any], key: Any) -> Any:
    """What the cache has under this key.  A bounded cache keeps its entries in a list, and shows each as key, result and type."""
    entry = table.get(key, ABSENT)
    if entry is ABSENT or Wrapper.cache_info(fn).maxsize is None:
        return entry
    shown = gc.get_referents(fn)
    keys, results = shown[1:-6:3], shown[2:-6:3]
    return next(
        (result for known, result in zip(keys, results, strict=True) if known == key), ABSENT
    )


def is_constant(t: Tracer, value: Value) -> bool:
    value = t.look(value)
    if isinstance(value, TupleValue) and value.type() is tuple:
        return all(is_constant(t, item) for item in value.items)
    return isinstance(value, ConstValue)
