"""Methods of lists, tuples, dictionaries, their views, sets, strings and generators, called on values.

In: the method as found in the builtin class, and its arguments with the instance first.  Registers with `builtins.FUNCTIONS`.
"""

from __future__ import annotations

import collections
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from frameloom.capture.builtins import (
    FUNCTIONS,
    Args,
    Known,
    Kwargs,
    fill_dict,
    knows,
    sorted_items,
)
from frameloom.capture.generator import GeneratorValue
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE, ConstValue, boolean
from frameloom.capture.values.container import ListValue, SequenceValue, SetValue, TupleValue
from frameloom.capture.values.dictionary import VIEWS, DictValue, ViewValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.static import GradModeValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.tracer import Tracer

OrderedDict = collections.OrderedDict


def _own(t: Tracer, args: Args, kind: Any) -> Any:
    """The instance: itself, or what an instance of a subclass holds."""
    value = t.look(args[0])
    if isinstance(value, ObjectValue) and value.payload is not None:
        value = value.payload
    if not isinstance(value, kind):
        raise Break("unknown_call", f"method of {value.describe()}")
    return value


# --- lists and tuples


def _list(t: Tracer, args: Args) -> ListValue:
    found: ListValue = _own(t, args, ListValue)
    return found


@knows(list.append, least=2, most=2)
def _append(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _list(t, args).append(t, args[1])
    return NONE


@knows(list.extend, least=2, most=2)
def _extend(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own, items = _list(t, args), t.list_items(args[1])
    for item in items:
        own.append(t, item)
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
    items = sorted_items(t, own.items, kwargs)
    t.change(own)
    own.items = items
    return NONE


@knows(list.copy, least=1, most=1)
def _copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(list(_list(t, args).items))


@knows(list.index, tuple.index, least=2, most=2)
def _index(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _own(t, args, SequenceValue)
    if len(args) > 2:
        raise Break("unknown_call", "index(x, start)")
    place = own.find(t, t.look(args[1]))
    return ConstValue(place) if place is not None else t.raise_(ValueError, "x not in sequence")


@knows(list.count, tuple.count, least=2, most=2)
def _count(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _own(t, args, SequenceValue)
    return ConstValue(sum(t.same_or_equal(item, args[1]) for item in own.items))


@knows(list.__init__, least=1, most=2)
def _list_init(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _list(t, args)
    t.change(own)
    own.items = t.list_items(args[1]) if len(args) > 1 else []
    return NONE


def numel(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """torch.Size.numel"""
    total = 1
    for item in t.items(t.look(args[0])):
        total *= t.index(item)
    return ConstValue(total)


import torch  # noqa: E402

FUNCTIONS[torch.Size.numel] = numel


# --- dictionaries


def _table(t: Tracer, args: Args) -> DictValue:
    found: DictValue = _own(t, args, DictValue)
    return found


@knows(dict.get, OrderedDict.get, least=2, most=3)
def _get(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    found = _table(t, args).get(t, t.look(args[1]))
    if found is not None:
        return found
    return t.look(args[2]) if len(args) > 2 else NONE


def _view(kind: str) -> Known:
    return lambda t, args, kwargs: ViewValue(_table(t, args), kind)


for _kind in VIEWS:
    FUNCTIONS[getattr(dict, _kind)] = _view(_kind)
    FUNCTIONS[getattr(OrderedDict, _kind)] = _view(_kind)


@knows(dict.pop, OrderedDict.pop, least=2, most=3)
def _dict_pop(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own, key = _table(t, args), t.look(args[1])
    found = own.get(t, key)
    if found is None:
        return t.look(args[2]) if len(args) > 2 else t.raise_value(KeyError, [key])
    own.delitem(t, key)
    return found


@knows(dict.popitem, OrderedDict.popitem, least=1, most=1)
def _popitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _table(t, args)
    entries = list(own.entries(t).values())
    if not entries:
        t.raise_(KeyError, "popitem(): dictionary is empty")
    key, value = entries[-1]
    own.delitem(t, key)
    return TupleValue([key, value])


@knows(dict.setdefault, OrderedDict.setdefault, least=2, most=3)
def _setdefault(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own, key = _table(t, args), t.look(args[1])
    found = own.get(t, key)
    if found is None:
        found = t.look(args[2]) if len(args) > 2 else NONE
        own.setitem(t, key, found)
    return found


@knows(
    dict.update,
    OrderedDict.update,
    dict.__init__,
    OrderedDict.__init__,
    least=1,
    most=2,
    keywords="*",
)
def _update(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    fill_dict(t, _table(t, args), args[1:], kwargs)
    return NONE


@knows(dict.clear, OrderedDict.clear, least=1, most=1)
def _dict_clear(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _table(t, args).clear(t)
    return NONE


@knows(dict.copy, OrderedDict.copy, least=1, most=1)
def _dict_copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _table(t, args)
    result = DictValue(cls=own.cls if own.cls in (dict, OrderedDict) else dict)
    fill_dict(t, result, [own], {})
    return result


@knows(dict.fromkeys, least=1, most=2)
def _fromkeys(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    result = DictValue()
    for key in t.list_items(args[0]):
        result.setitem(t, t.look(key), args[1] if len(args) > 1 else NONE)
    return result


@knows(dict.__getitem__, least=2, most=2)
def _dict_getitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _table(t, args).getitem(t, t.look(args[1]))


@knows(dict.__setitem__, OrderedDict.__setitem__, least=3, most=3)
def _dict_setitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _table(t, args).setitem(t, t.look(args[1]), args[2])
    return NONE


@knows(dict.__delitem__, OrderedDict.__delitem__, least=2, most=2)
def _dict_delitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _table(t, args).delitem(t, t.look(args[1]))
    return NONE


@knows(dict.__contains__, least=2, most=2)
def _dict_contains(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(_table(t, args).contains(t, t.look(args[1])))


@knows(dict.__iter__, OrderedDict.__iter__, least=1, most=1)
def _dict_iter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _table(t, args).iterate(t)


@knows(dict.__len__, least=1, most=1)
def _dict_len(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(_table(t, args).length(t))


@knows(list.__getitem__, tuple.__getitem__, least=2, most=2)
def _sequence_getitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own: SequenceValue = _own(t, args, SequenceValue)
    return own.getitem(t, t.look(args[1]))


# --- sets


def _set(t: Tracer, args: Args) -> SetValue:
    found: SetValue = _own(t, args, SetValue)
    return found


@knows(set.add, least=2, most=2)
def _add(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _set(t, args).add(t, args[1])
    return NONE


@knows(set.update, least=1)
def _set_update(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _set(t, args)
    for source in args[1:]:
        for item in t.list_items(source):
            own.add(t, item)
    return NONE


@knows(set.discard, least=2, most=2)
def _discard(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own, key = _set(t, args), t.look(args[1]).key(t)
    if key in own.entries:
        t.change(own)
        del own.entries[key]
    return NONE


@knows(set.remove, least=2, most=2)
def _set_remove(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not _set(t, args).contains(t, t.look(args[1])):
        t.raise_value(KeyError, [args[1]])
    return _discard(t, args, kwargs)


@knows(set.copy, least=1, most=1)
def _set_copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    result = SetValue()
    result.entries = dict(_set(t, args).entries)
    return result


@knows(set.union, frozenset.union, least=1)
def _union(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _set(t, args)
    result = SetValue(own.cls)
    result.entries = dict(own.entries)
    for source in args[1:]:
        for item in t.list_items(source):
            result.entries.setdefault(t.look(item).key(t), t.look(item))
    return result


@knows(set.clear, least=1, most=1)
def _set_clear(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _set(t, args)
    t.change(own)
    own.entries.clear()
    return NONE


# --- strings, generators, context managers


@knows(str.join, least=2, most=2)
def _join(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.evaluate(str.join, [args[0], t.tuple_of(args[1])], {})


def _generator(t: Tracer, args: Args) -> GeneratorValue:
    value = t.look(args[0])
    if not isinstance(value, GeneratorValue):
        raise Break("generator", f"method of {value.describe()}")
    return value


@knows(GeneratorType.send, least=2, most=2)
def _send(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.look(_generator(t, args).send(t, args[1]))


@knows(GeneratorType.__next__, least=1, most=1)
def _generator_next(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.look(_generator(t, args).send(t, NONE))


@knows(GeneratorType.close, least=1, most=1)
def _close(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _generator(t, args)
    return NONE


def _grad_mode(t: Tracer, args: Args) -> GradModeValue:
    value = t.look(args[0])
    if not isinstance(value, GradModeValue):
        raise Break("context_manager", f"{value.describe()} entered before")
    return value


for _cls in GradModeValue.CLASSES:
    FUNCTIONS[_cls.__enter__] = lambda t, args, kwargs: _grad_mode(t, args).enter(t)
    FUNCTIONS[_cls.__exit__] = lambda t, args, kwargs: _grad_mode(t, args).exit(t)
