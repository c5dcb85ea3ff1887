"""Methods of sets and frozensets."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Known, Kwargs, knows
from frameloom.capture.interpreter.container_operators import combine_in_place, combined
from frameloom.capture.library.builtins import instance
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE, boolean
from frameloom.capture.values.containers.sets import SetValue, as_set, set_of

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def _set(t: Tracer, args: Args) -> SetValue:
    set_value: SetValue = instance(t, args, SetValue)
    return set_value


def _other(t: Tracer, value: Value) -> SetValue:
    """Returns any iterable as a set."""
    converted = as_set(t, t.look(value))
    return converted if converted is not None else set_of(t, set, t.list_items(value))


@knows(set.add, least=2, most=2)
def _add(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _set(t, args).add(t, args[1])
    return NONE


@knows(set.update, least=1)
def _update(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    for source in args[1:]:
        _set(t, args).update(t, source)
    return NONE


@knows(set.discard, least=2, most=2)
def _discard(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own, item = _set(t, args), t.look(args[1])
    if own.contains(t, item):
        own.remove(t, _key(t, item))
    return NONE


def _key(t: Tracer, item: Value) -> Any:
    return frozenset(item.entries) if isinstance(item, SetValue) else item.key(t)


@knows(set.remove, least=2, most=2)
def _remove(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not _set(t, args).contains(t, t.look(args[1])):
        t.raise_value(KeyError, [args[1]])
    return _discard(t, args, kwargs)


@knows(set.pop, least=1, most=1)
def _pop(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _set(t, args)
    if not own.entries:
        t.raise_(KeyError, "pop from an empty set")
    return own.pop(t)


@knows(set.clear, least=1, most=1)
def _clear(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _set(t, args).clear(t)
    return NONE


@knows(set.copy, frozenset.copy, least=1, most=1)
def _copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _set(t, args)
    return own if own.cls is frozenset else _copied(own)


def _copied(own: SetValue) -> SetValue:
    result, model = SetValue(own.cls), own.model()
    result.entries, result.placed = dict(own.entries), dict(own.placed)
    result.twin = None if model is None else own.cls(model)
    return result


def _algebra(fn: Callable[[Any, Any], Any], in_place: bool) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        own = _set(t, args)
        if in_place and len(args) == 2:
            combine_in_place(t, fn, own, _other(t, args[1]))
            return NONE
        result = own
        if fn is operator.or_:
            for n, other in enumerate(args[1:]):
                result = _copied(own) if n == 0 else result
                result.update(t, other)
            return result if len(args) > 1 else _copy(t, [own], {})
        for other in args[1:]:
            result = combined(t, fn, result, _other(t, other))
        if in_place:
            own.become(t, result)
            return NONE
        return result if result is not own else _copy(t, [own], {})

    return handler


for _name, _fn in (("union", operator.or_), ("intersection", operator.and_), ("difference", operator.sub),
                   ("symmetric_difference", operator.xor)):  # fmt: skip
    for _cls in (set, frozenset):
        knows(getattr(_cls, _name), least=1, most=2 if _fn is operator.xor else None)(
            _algebra(_fn, False)
        )
    if _fn not in (operator.or_, operator.sub):
        knows(getattr(set, f"{_name}_update"), least=1)(_algebra(_fn, True))


def _question(fn: Callable[[Any, Any], bool]) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return boolean(fn(_set(t, args).entries.keys(), _other(t, args[1]).entries.keys()))

    return handler


def _of_each(wanted: bool) -> Known:
    """Returns a rule that, like CPython, takes items of an iterable that is not a set until it finds one
    whose membership in the set is `wanted`."""

    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        own, other = _set(t, args), t.look(args[1])
        items = as_set(t, other)
        values = iter(items.entries.values()) if items is not None else t.each(other)
        return boolean(not any(own.contains(t, t.look(item)) is wanted for item in values))

    return handler


for _cls in (set, frozenset):
    knows(_cls.issubset, least=2, most=2)(_question(operator.le))
    knows(_cls.issuperset, least=2, most=2)(_of_each(False))
    knows(_cls.isdisjoint, least=2, most=2)(_of_each(True))


@knows(set.difference_update, least=1)
def _difference_update(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    for other in args[1:]:
        for batch in t.batches(other):
            for item in batch:
                _discard(t, [args[0], item], {})
    return NONE


def _contains(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(_set(t, args).contains(t, t.look(args[1])))


for _cls in (set, frozenset):
    FUNCTIONS[_cls.__contains__] = _contains
