"""Reads the entries of mappings, and fills dictionaries with them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from frameloom.capture.guards.class_lookup import MISSING
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.proxy import MappingProxyValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def mapping_entries(
    t: Tracer, source: Value, is_asked: bool = False
) -> Iterable[tuple[Value, Value]]:
    """Returns keys and values; methods of the program are called while they are read. If a dictionary's class
    iterates like `dict`, CPython copies its table and ignores its other methods, unless `is_asked`."""
    if isinstance(source, MappingProxyValue):
        source = source.over
    if isinstance(source, ObjectValue) and isinstance(source.payload, DictValue):
        is_asked = is_asked or issubclass(source.cls, OrderedDict)
        names = ("__iter__", "keys", "__getitem__") if is_asked else ("__iter__",)
        if any(source.special(name) is not MISSING for name in names):
            return _asked_entries(t, source)
        source = source.payload
    if isinstance(source, DictValue):
        return list(source.entries(t).values())
    return _asked_entries(t, source)


def _asked_entries(t: Tracer, source: Value) -> Iterator[tuple[Value, Value]]:
    for key in t.list_items(t.call(source.getattr(t, "keys"), [], {})):
        yield t.look(key), source.getitem(t, t.look(key))


def _pairs(t: Tracer, source: Value) -> Iterator[tuple[Value, Value]]:
    for n, item in enumerate(t.each(source)):
        try:
            pair = t.list_items(item)
        except Raised as raised:
            if not raised.is_a(TypeError):
                raise
            t.raise_(TypeError, f"cannot convert dictionary update sequence element #{n} to a sequence")  # fmt: skip
        if len(pair) != 2:
            t.raise_(ValueError, f"dictionary update sequence element #{n} has length {len(pair)}; 2 is required")  # fmt: skip
        yield t.look(pair[0]), pair[1]


def fill_dict(t: Tracer, target: Value, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Does what `update` of a dictionary's class does: that of `OrderedDict` calls methods of subclasses,
    that of `dict` does not."""
    is_ordered = issubclass(target.type(), OrderedDict)
    if isinstance(target, ObjectValue) and isinstance(target.payload, DictValue) and not is_ordered:
        target = target.payload
    if args:
        source = t.look(args[0])
        is_mapping = isinstance(source, DictValue | MappingProxyValue) or (
            isinstance(source, ObjectValue)
            and (source.payload is not None or source.special("keys") is not MISSING)
        )
        entries = mapping_entries(t, source, is_ordered) if is_mapping else _pairs(t, source)
        for key, value in entries:
            target.setitem(t, key, value)
    for name, value in kwargs.items():
        target.setitem(t, ConstValue(name), value)
