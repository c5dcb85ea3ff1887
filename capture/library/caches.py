"""Calls of functions made by `functools.cache` and `lru_cache`.

A cached result is used while the cache has it: the guards look up the entry in the cache at each call, so
they notice when the cache is cleared or drops the entry for newer ones. A constant is known from then on; any
other object is read from the entry. If the cache has no result, the capture itself makes the call, at the point
where the program would make it. It does so only if no effects that the function could see are pending, among
them writes to tensors and random draws, and no older entry is dropped for the new result.
"""

from __future__ import annotations

import functools
import gc
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.interpreter.call_rules import knows_kind
from frameloom.capture.tensors.schema import draws
from frameloom.capture.values import const
from frameloom.capture.values.base import NotConstant, Value
from frameloom.capture.values.const import LITERALS
from frameloom.capture.values.containers.container import plain
from frameloom.capture.values.object import ObjectValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer

Wrapper = functools._lru_cache_wrapper
ABSENT = object()


@knows_kind(Wrapper)
def _cached(t: Tracer, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Returns the result of a call; equal arguments give the same result while the cache has it."""
    try:
        given = tuple(argument(t, arg) for arg in args)
        named = {name: argument(t, value) for name, value in kwargs.items()}
    except NotConstant:
        raise Break("unknown_call", f"{name_of(fn)}(...)") from None
    table, separator = parts_of(fn)
    key = key_of(fn, given, named, separator)
    if not holds(table, key) and (is_full(fn) or t.pending() or has_effects_on_tensors(t)):
        raise Break("cold_cache", f"{name_of(fn)}(...)")
    try:
        result = fn(*given, **named)
    except Exception as error:  # it is not cached
        raise Break("unknown_call", f"{name_of(fn)}(...)") from error
    if remembered(fn, table, key) is not result:
        raise Break("unknown_call", f"{name_of(fn)}(...) is not cached")
    place = entry_of(t, fn, table, key, result)
    if not is_constant(result):
        return t.look(t.wrap(result, place))
    t.guards.add(place, "equal" if type(result) in LITERALS else "is", result)
    return (
        t.pinned(result) if type(result) is tuple else t.from_python(result)
    )  # the same object each time


def has_effects_on_tensors(t: Tracer) -> bool:
    """Whether the graph so far writes to tensors from before, or draws random numbers."""
    if any(f.memory is not None and f.memory.version for f in t.recorder.fakes):
        return True
    return bool(t.draws) or any(draws(node) for node in t.recorder.graph.nodes)


def argument(t: Tracer, value: Value) -> Any:
    """Returns a constant, or an object that equals only itself and that a guard checks by identity."""
    value = t.look(value)
    if isinstance(value, ObjectValue) and value.real is not None and value.origin is not None:
        methods = (class_attribute(value.cls, name) for name in ("__hash__", "__eq__"))
        if tuple(methods) == (object.__hash__, object.__eq__):
            t.guards.add(value.origin, "is", value.real)
            return value.real
    return plain(value)


def entry_of(t: Tracer, fn: Any, table: dict[Any, Any], key: Any, result: Any) -> Origin:
    """Returns the source of the cached result."""
    stored = next(known for known in table if known == key)
    place = t.roots.object(table, f"the cache of {name_of(fn)}").child("key", stored)
    if table[stored] is not result:
        t.guards.add(place, "type", type(table[stored]))
        place = place.child("cached")
    return place


def name_of(fn: Any) -> str:
    return str(getattr(fn, "__name__", "cached function"))


def parts_of(fn: Any) -> tuple[dict[Any, Any], object]:
    """Returns the dictionary of its entries, and the separator between positional and named arguments in
    their keys."""
    match gc.get_referents(fn)[-6:]:
        case [dict() as table, function, separator, type(), type(), dict()]:
            is_plain = type(separator) is object and not issubclass(type(function), Wrapper)
            remembers = Wrapper.cache_info(fn).maxsize != 0
            if is_plain and remembers and hasattr(fn, "cache_parameters"):
                return table, separator
    raise Break("unknown_call", f"{name_of(fn)}(...)")


def key_of(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], separator: object) -> Any:
    """Returns the key, made like in CPython's `lru_cache_make_key`."""
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
    """Whether a new entry replaces an old one, on which this capture may rely."""
    info = Wrapper.cache_info(fn)
    return info.maxsize is not None and info.currsize >= info.maxsize


def holds(table: dict[Any, Any], key: Any) -> bool:
    try:
        return key in table
    except Exception:  # the call will raise the right error
        return False


def remembered(fn: Any, table: dict[Any, Any], key: Any) -> Any:
    """Returns the cached result for this key. A bounded cache keeps its entries in a list, which shows each
    as key, result and type."""
    entry = table.get(key, ABSENT)
    if entry is ABSENT or Wrapper.cache_info(fn).maxsize is None:
        return entry
    shown = gc.get_referents(fn)
    keys, results = shown[1:-6:3], shown[2:-6:3]
    return next(
        (result for known, result in zip(keys, results, strict=True) if known == key), ABSENT
    )


def is_constant(result: Any) -> bool:
    if type(result) is tuple:
        return all(map(is_constant, result))
    return const.is_constant(result)
