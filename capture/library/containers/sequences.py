"""Methods of lists and tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.library.builtins import instance
from frameloom.capture.library.containers.iteration import sorted_items
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE, ConstValue
from frameloom.capture.values.containers.container import ListValue, SequenceValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


# --- lists and tuples


def _list(t: Tracer, args: Args) -> ListValue:
    list_value: ListValue = instance(t, args, ListValue)
    return list_value


@knows(list.append, least=2, most=2)
def _append(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _list(t, args).append(t, args[1])
    return NONE


@knows(list.extend, least=2, most=2)
def _extend(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _list(t, args).extend(t, args[1])
    return NONE


@knows(list.insert, least=3, most=3)
def _insert(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own, place = _list(t, args), t.index(args[1])
    t.change(own)
    own.items.insert(place, args[2])
    return NONE


@knows(list.pop, least=1, most=2)
def _pop(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own, place = _list(t, args), t.index(args[1]) if len(args) > 1 else -1
    if not -len(own.items) <= place < len(own.items):
        t.raise_(IndexError, "pop index out of range" if own.items else "pop from empty list")
    t.change(own)
    return t.look(own.items.pop(place))


@knows(list.remove, least=2, most=2)
def _remove(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _list(t, args)
    place = own.find(t, args[1])
    if place is None:
        t.raise_(ValueError, "list.remove(x): x not in list")
    t.change(own)
    del own.items[place]
    return NONE


@knows(list.clear, least=1, most=1)
def _clear(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _list(t, args)
    t.change(own)
    own.items.clear()
    return NONE


@knows(list.reverse, least=1, most=1)
def _reverse(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _list(t, args)
    t.change(own)
    own.items.reverse()
    return NONE


@knows(list.sort, least=1, most=1, keywords="key reverse")
def _sort(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _list(t, args)
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
    if t.has_changed(own, mark):  # it is empty again; CPython notices that if memory was allocated
        raise Break("opaque_object", "sort() of a list that is changed meanwhile")
    return NONE


@knows(list.copy, least=1, most=1)
def _copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(list(_list(t, args).items))


@knows(list.index, tuple.index, least=2, most=4)
def _index(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = instance(t, args, SequenceValue)
    bounds = slice(*(t.index(bound) for bound in args[2:])) if len(args) > 3 else slice(t.index(args[2]) if len(args) > 2 else 0, None)  # fmt: skip
    for place in range(*bounds.indices(len(own.items))):
        if t.same_or_equal(own.items[place], args[1]):
            return ConstValue(place)
    if isinstance(own, ListValue):
        text = t.call_builtin(repr, [args[1]], {}).constant()
        return t.raise_(ValueError, f"{text} is not in list")
    return t.raise_(ValueError, "tuple.index(x): x not in tuple")


@knows(list.count, tuple.count, least=2, most=2)
def _count(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = instance(t, args, SequenceValue)
    return ConstValue(sum(t.same_or_equal(item, args[1]) for item in own.items))


@knows(list.__init__, least=1, most=2)
def _list_init(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _list(t, args)
    t.change(own)
    own.items = []
    if len(args) > 1:
        own.extend(t, args[1])
    return NONE


@knows(list.__getitem__, tuple.__getitem__, least=2, most=2)
def _sequence_getitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own: SequenceValue = instance(t, args, SequenceValue)
    return own.getitem(t, t.look(args[1]))
