"""Methods of lists and tuples, and slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.library.builtins import instance, method
from frameloom.capture.library.containers.iteration import sorted_items
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE
from frameloom.capture.values.containers.container import ListValue, SequenceValue, SliceValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

method(ListValue, list.append)(ListValue.append)
method(ListValue, list.extend)(ListValue.extend)
method(SequenceValue, list.count, tuple.count)(SequenceValue.count)


@method(ListValue, list.insert)
def _insert(own: ListValue, t: Tracer, place: Value, item: Value) -> None:
    index = t.index(place)
    t.change(own)
    own.items.insert(index, item)


@method(ListValue, list.pop)
def _pop(own: ListValue, t: Tracer, place: Value | None = None) -> Value:
    index = -1 if place is None else t.index(place)
    if not -len(own.items) <= index < len(own.items):
        t.raise_(IndexError, "pop index out of range" if own.items else "pop from empty list")
    t.change(own)
    return t.look(own.items.pop(index))


@method(ListValue, list.remove)
def _remove(own: ListValue, t: Tracer, item: Value) -> None:
    place = own.find(t, item)
    if place is None:
        t.raise_(ValueError, "list.remove(x): x not in list")
    t.change(own)
    del own.items[place]


@method(ListValue, list.clear)
def _clear(own: ListValue, t: Tracer) -> None:
    t.change(own)
    own.items.clear()


@method(ListValue, list.reverse)
def _reverse(own: ListValue, t: Tracer) -> None:
    t.change(own)
    own.items.reverse()


@knows(list.sort, least=1, most=1, keywords="key reverse")
def _sort(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    own = instance(t, args, ListValue)
    items, now = own.items, list[Value]()
    t.change(own)
    own.items = now  # CPython shows an empty list while it sorts
    mark = t.mark()
    try:
        items = sorted_items(t, items, kwargs)
    finally:
        is_changed = own.items is not now or bool(now)
        own.items = items
    if is_changed:
        t.raise_(ValueError, "list modified during sort")
    if own in t.changed_since(
        mark
    ):  # it is empty again; CPython notices that if memory was allocated
        raise Break("opaque_object", "sort() of a list that is changed meanwhile")


@method(ListValue, list.copy)
def _copy(own: ListValue, t: Tracer) -> Value:
    return ListValue(list(own.items))


@method(SequenceValue, list.index, tuple.index)
def _index(
    own: SequenceValue,
    t: Tracer,
    item: Value,
    start: Value | None = None,
    stop: Value | None = None,
) -> int:
    first = 0 if start is None else t.index(start)
    bounds = slice(first, None if stop is None else t.index(stop))
    for place in range(*bounds.indices(len(own.items))):
        if t.same_or_equal(own.items[place], item):
            return place
    if isinstance(own, ListValue):
        text = t.call_builtin(repr, [item], {}).constant()
        t.raise_(ValueError, f"{text} is not in list")
    t.raise_(ValueError, "tuple.index(x): x not in tuple")


@method(ListValue, list.__init__)
def _list_init(own: ListValue, t: Tracer, source: Value | None = None) -> None:
    t.change(own)
    own.items = []
    if source is not None:
        own.extend(t, source)


@knows(slice, least=1, most=3)
def _slice(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    bounds = args if len(args) > 1 else [NONE, *args]
    start, stop, step = map(t.look, [*bounds, NONE][:3])
    return SliceValue(start, stop, step)
