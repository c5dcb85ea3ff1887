"""Methods of dictionaries and their views."""

from __future__ import annotations

import collections
import operator
from collections import OrderedDict, defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING

from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.interpreter import operators
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Known, Kwargs, knows
from frameloom.capture.interpreter.mappings import fill_dict
from frameloom.capture.library.builtins import instance, is_callable, method
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE, ConstValue
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.containers.dictionary import (
    DefaultDictValue,
    DictValue,
    ViewValue,
)
from frameloom.capture.values.proxy import MappingProxyValue, is_mapping
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


# --- dictionaries


@knows(MappingProxyType, least=1, most=1)
def _proxy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    mapping = t.look(args[0])
    if not is_mapping(mapping):
        raise Break("unknown_call", f"MappingProxyType({mapping.describe()})")
    return MappingProxyValue(mapping)


def _table(t: Tracer, args: Args) -> DictValue:
    table: DictValue = instance(t, args, DictValue)
    return table


def _written(t: Tracer, args: Args) -> Value:
    """Returns the object that methods write to: those of `OrderedDict` call `__setitem__` of subclasses."""
    own = _table(t, args)
    return t.look(args[0]) if issubclass(own.cls, OrderedDict) else own


@method(DictValue, dict.get, OrderedDict.get)
def _get(own: DictValue, t: Tracer, key: Value, default: Value = NONE) -> Value:
    return own.get(t, t.look(key)) or t.look(default)


@method(DictValue, dict.keys, OrderedDict.keys)
def _keys(own: DictValue, t: Tracer) -> Value:
    return ViewValue(own, "keys")


@method(DictValue, dict.values, OrderedDict.values)
def _values(own: DictValue, t: Tracer) -> Value:
    return ViewValue(own, "values")


@method(DictValue, dict.items, OrderedDict.items)
def _items(own: DictValue, t: Tracer) -> Value:
    return ViewValue(own, "items")


@method(DictValue, dict.pop, OrderedDict.pop)
def _pop(own: DictValue, t: Tracer, key: Value, default: Value | None = None) -> Value:
    key = t.look(key)
    value = own.get(t, key)
    if value is None:
        return t.raise_value(KeyError, [key]) if default is None else t.look(default)
    own.delitem(t, key)
    return value


@knows(dict.popitem, least=1, most=1)
@knows(OrderedDict.popitem, least=1, most=2, keywords="last")
def _popitem(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own, last = _table(t, args), _is_last(t, args[1:], kwargs)
    entries = list(own.entries(t).items())
    if not entries:
        is_ordered = issubclass(own.cls, OrderedDict)
        t.raise_(
            KeyError, "dictionary is empty" if is_ordered else "popitem(): dictionary is empty"
        )
    index, (key, value) = entries[-1 if last else 0]
    own.delete_at(t, index, key)
    return TupleValue([key, value])


def _is_last(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    last = kwargs.get("last", args[0] if args else None)
    return last is None or t.look(last).truth(t)


@knows(OrderedDict.move_to_end, least=2, most=3, keywords="last")
def _move_to_end(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    own, key = _table(t, args), t.look(args[1])
    value = own.get(t, key)
    if value is None:
        t.raise_value(KeyError, [key])
    if _is_last(t, args[2:], kwargs):
        own.delitem(t, key)
        own.setitem(t, key, value)
        return
    for other, item in list(own.entries(t).values()):  # moves all others behind it
        if other.key(t) != key.key(t):
            own.delitem(t, other)
            own.setitem(t, other, item)


@knows(dict.setdefault, OrderedDict.setdefault, least=2, most=3)
def _setdefault(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own, key = _table(t, args), t.look(args[1])
    index = key.key(t)
    value = own.get_at(t, index)
    if value is None:
        value = t.look(args[2]) if len(args) > 2 else NONE
        written = _written(t, args)
        if written is own:
            own.set_at(t, index, key, value)
        else:
            written.setitem(t, key, value)
    return value


@knows(
    dict.update,
    OrderedDict.update,
    dict.__init__,
    OrderedDict.__init__,
    least=1,
    most=2,
    keywords="*",
)
def _update(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    fill_dict(t, _written(t, args), args[1:], kwargs)


@knows(defaultdict, most=2, keywords="*")
def _new_defaultdict(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    result = DefaultDictValue(cls=defaultdict)
    if args:
        result.factory = t.look(args[0])
        if result.factory.type() is not type(None) and not is_callable(result.factory):
            t.raise_(TypeError, "first argument must be callable or None")
    fill_dict(t, result, args[1:], kwargs)
    return result


@knows(defaultdict.__missing__, least=2, most=2)
def _missing(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _table(t, args)
    if not isinstance(own, DefaultDictValue):
        raise Break("unknown_call", f"__missing__ of {own.describe()}")
    holder = t.look(args[0])
    return own.missing(t, t.look(args[1]), None if holder is own else holder)


@knows(collections._count_elements, least=2, most=2)  # type: ignore[attr-defined]
def _count_elements(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    cls = t.look(args[0]).type()
    if any(
        class_attribute(cls, name) is not dict.__dict__[name] for name in ("get", "__setitem__")
    ):
        raise Break("unknown_call", "_count_elements(...)")
    own = _table(t, args)
    for item in t.each(args[1]):
        item = t.look(item)
        own.setitem(t, item, operators.binary(t, operator.add, own.get(t, item) or ConstValue(0), ConstValue(1)))  # fmt: skip


@knows(dict.copy, least=1, most=1)
def _copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _table(t, args)
    result = DictValue()
    fill_dict(t, result, args, {})
    return result


@method(DictValue, OrderedDict.copy, defaultdict.copy, defaultdict.__copy__)
def _copy_of_own_class(own: DictValue, t: Tracer) -> Value:
    if own.cls not in (OrderedDict, defaultdict):  # calls the class
        raise Break("unknown_call", f"copy of {own.describe()}")
    result = own.empty()
    fill_dict(t, result, [own], {})
    return result


for _cls in (dict, OrderedDict):

    @knows(_cls.fromkeys, least=1, most=2)
    def _fromkeys(t: Tracer, args: Args, kwargs: Kwargs, cls: type = _cls) -> Value:
        result = DictValue(cls=cls)
        for key in t.list_items(args[0]):
            result.setitem(t, t.look(key), args[1] if len(args) > 1 else NONE)
        return result


method(DictValue, dict.clear, OrderedDict.clear)(DictValue.clear)
method(DictValue, dict.__iter__, OrderedDict.__iter__)(DictValue.iterate)
method(DictValue, dict.__len__)(DictValue.length)


@method(DictValue, dict.__getitem__)
def _getitem(own: DictValue, t: Tracer, key: Value) -> Value:
    return own.getitem(t, t.look(key))


@method(DictValue, dict.__setitem__, OrderedDict.__setitem__)
def _setitem(own: DictValue, t: Tracer, key: Value, value: Value) -> None:
    own.setitem(t, t.look(key), value)


@method(DictValue, dict.__delitem__, OrderedDict.__delitem__)
def _delitem(own: DictValue, t: Tracer, key: Value) -> None:
    own.delitem(t, t.look(key))


@method(DictValue, dict.__contains__)
def _contains(own: DictValue, t: Tracer, key: Value) -> bool:
    return own.contains(t, t.look(key))


def _unless_ordered(name: str, known: Known) -> Known:
    def checked(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if args and issubclass(_table(t, args).cls, OrderedDict):
            raise Break("unknown_call", f"dict.{name} of an OrderedDict, past the order it keeps")
        return known(t, args, kwargs)

    return checked


# OrderedDict keeps its order beside the table: dict's own methods change the table, but not this order.
for _name, _own in list(vars(dict).items()):
    if _own in FUNCTIONS and _name in vars(OrderedDict) and _name != "fromkeys":
        FUNCTIONS[_own] = _unless_ordered(_name, FUNCTIONS[_own])
