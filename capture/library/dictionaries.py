"""Methods of dictionaries and their views."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from frameloom.capture.builtins import FUNCTIONS, Args, Known, Kwargs, fill_dict, instance, knows
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE, ConstValue, boolean
from frameloom.capture.values.container import TupleValue
from frameloom.capture.values.dictionary import VIEWS, DictValue, ViewValue

if TYPE_CHECKING:
    from frameloom.capture.tracer import Tracer


# --- dictionaries


def _table(t: Tracer, args: Args) -> DictValue:
    found: DictValue = instance(t, args, DictValue)
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
