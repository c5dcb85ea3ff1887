"""Methods of sets and frozensets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.builtins import Args, Kwargs, instance, knows
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE
from frameloom.capture.values.container import SetValue

if TYPE_CHECKING:
    from frameloom.capture.tracer import Tracer


# --- sets


def _set(t: Tracer, args: Args) -> SetValue:
    found: SetValue = instance(t, args, SetValue)
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
