"""Methods of sets and frozensets."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.library.builtins import method
from frameloom.capture.values.base import Value
from frameloom.capture.values.containers.dictionary import ViewValue
from frameloom.capture.values.containers.sets import (
    SetValue,
    as_set,
    combine_in_place,
    combined,
    set_of,
)

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

method(SetValue, set.add)(SetValue.add)
method(SetValue, set.clear)(SetValue.clear)


def _other(t: Tracer, value: Value) -> SetValue:
    """Returns any iterable as a set."""
    converted = as_set(t, t.look(value))
    return converted if converted is not None else set_of(t, set, t.list_items(value))


@method(SetValue, set.update)
def _update(own: SetValue, t: Tracer, *sources: Value) -> None:
    for source in sources:
        own.update(t, source)


@method(SetValue, set.discard)
def _discard(own: SetValue, t: Tracer, item: Value) -> None:
    item = t.look(item)
    if own.contains(t, item):
        own.remove(t, frozenset(item.entries) if isinstance(item, SetValue) else item.key(t))


@method(SetValue, set.remove)
def _remove(own: SetValue, t: Tracer, item: Value) -> None:
    if not own.contains(t, t.look(item)):
        t.raise_value(KeyError, [item])
    _discard(own, t, item)


@method(SetValue, set.pop)
def _pop(own: SetValue, t: Tracer) -> Value:
    if not own.entries:
        t.raise_(KeyError, "pop from an empty set")
    return own.pop(t)


def _copied(own: SetValue) -> SetValue:
    result, model = SetValue(own.cls), own.model()
    result.entries, result.placed = dict(own.entries), dict(own.placed)
    result.twin = None if model is None else own.cls(model)
    return result


@method(SetValue, set.copy, frozenset.copy)
def _copy(own: SetValue, t: Tracer) -> Value:
    return own if own.cls is frozenset else _copied(own)


@method(SetValue, set.union, frozenset.union)
def _union(own: SetValue, t: Tracer, *others: Value) -> Value:
    result = _copied(own) if others else own
    for other in others:
        result.update(t, other)
    return result if others else _copy(own, t)


@method(SetValue, set.difference_update)
def _difference_update(own: SetValue, t: Tracer, *others: Value) -> None:
    for other in others:
        for batch in t.batches(other):
            for item in batch:
                _discard(own, t, item)


def _algebra(fn: Callable[[Any, Any], Any]) -> Any:
    def combine(own: SetValue, t: Tracer, *others: Value) -> Value:
        result = own
        for other in others:
            result = combined(t, fn, result, _other(t, other))
        return result if others else _copy(own, t)

    return combine


method(SetValue, set.intersection, frozenset.intersection)(_algebra(operator.and_))
method(SetValue, set.difference, frozenset.difference)(_algebra(operator.sub))


@method(SetValue, set.symmetric_difference, frozenset.symmetric_difference)
def _symmetric_difference(own: SetValue, t: Tracer, other: Value) -> Value:
    return combined(t, operator.xor, own, _other(t, other))


@method(SetValue, set.symmetric_difference_update)
def _symmetric_difference_update(own: SetValue, t: Tracer, other: Value) -> None:
    combine_in_place(t, operator.xor, own, _other(t, other))


@method(SetValue, set.intersection_update)
def _intersection_update(own: SetValue, t: Tracer, *others: Value) -> None:
    if len(others) == 1:
        combine_in_place(t, operator.and_, own, _other(t, others[0]))
    else:
        result = _algebra(operator.and_)(own, t, *others)
        own.become(t, result)


@method(SetValue, set.issubset, frozenset.issubset)
def _is_subset(own: SetValue, t: Tracer, other: Value) -> bool:
    return own.entries.keys() <= _other(t, other).entries.keys()


def _of_each(wanted: bool) -> Any:
    """Returns a rule that, like CPython, takes items of an iterable that is not a set until it finds one
    whose membership in the set is `wanted`."""

    def ask(own: SetValue, t: Tracer, other: Value) -> bool:
        other = t.look(other)
        items = as_set(t, other)
        values = iter(items.entries.values()) if items is not None else t.each(other)
        return not any(own.contains(t, t.look(item)) is wanted for item in values)

    return ask


method(SetValue, set.issuperset, frozenset.issuperset)(_of_each(False))
method(SetValue, set.isdisjoint, frozenset.isdisjoint)(_of_each(True))
method(ViewValue, type({}.keys()).isdisjoint, type({}.items()).isdisjoint)(_of_each(True))
