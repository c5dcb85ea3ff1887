"""Methods of collections.deque."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from frameloom.capture.interpreter.call_rules import Args, Known, Kwargs, knows
from frameloom.capture.library.builtins import instance
from frameloom.capture.library.containers.iteration import knows_iterator
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE, ConstValue
from frameloom.capture.values.containers.deque import DequeValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


for _make in (iter, reversed):
    knows_iterator(type(_make(deque())))


def _deque(t: Tracer, args: Args) -> DequeValue:
    deque_value: DequeValue = instance(t, args, DequeValue)
    return deque_value


@knows(deque, most=2, keywords="iterable maxlen")
def _new(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("iterable", "maxlen"), args, strict=False)) | kwargs
    limit = t.look(given["maxlen"]) if "maxlen" in given else NONE
    items = t.list_items(given["iterable"]) if "iterable" in given else []
    return DequeValue(items, None if limit is NONE or limit.real is None else t.index(limit))


@knows(deque.append, least=2, most=2)
def _append(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _deque(t, args).append(t, args[1])
    return NONE


@knows(deque.appendleft, least=2, most=2)
def _appendleft(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _deque(t, args)
    own.replace(t, [args[1], *own.items], from_left=True)
    return NONE


@knows(deque.extend, least=2, most=2)
def _extend(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _deque(t, args).extend(t, args[1])
    return NONE


@knows(deque.extendleft, least=2, most=2)
def _extendleft(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _deque(t, args).extend_left(t, args[1])
    return NONE


def _taking(place: int) -> Known:
    def take(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        own = _deque(t, args)
        if not own.items:
            t.raise_(IndexError, "pop from an empty deque")
        items = list(own.items)
        item = items.pop(place)
        own.replace(t, items)
        return t.look(item)

    return take


knows(deque.pop, least=1, most=1)(_taking(-1))
knows(deque.popleft, least=1, most=1)(_taking(0))


@knows(deque.clear, least=1, most=1)
def _clear(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _deque(t, args).replace(t, [])
    return NONE


@knows(deque.copy, deque.__copy__, least=1, most=1)
def _copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _deque(t, args)
    return DequeValue(list(own.items), own.limit)


@knows(deque.rotate, least=1, most=2)
def _rotate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _deque(t, args)
    if own.items:
        count = (t.index(args[1]) if len(args) > 1 else 1) % len(own.items)
        own.replace(t, own.items[len(own.items) - count :] + own.items[: len(own.items) - count])
    return NONE


@knows(deque.reverse, least=1, most=1)
def _reverse(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _deque(t, args)
    own.replace(t, own.items[::-1])
    return NONE


@knows(deque.insert, least=3, most=3)
def _insert(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _deque(t, args)
    if own.limit is not None and len(own.items) >= own.limit:
        t.raise_(IndexError, "deque already at its maximum size")
    items = list(own.items)
    items.insert(t.index(args[1]), args[2])
    own.replace(t, items)
    return NONE


@knows(deque.remove, least=2, most=2)
def _remove(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = _deque(t, args)
    place = own.find(t, args[1])
    if place is None:
        t.raise_(ValueError, f"{own_text(t, args[1])} is not in deque")
    own.replace(t, own.items[:place] + own.items[place + 1 :])
    return NONE


@knows(deque.count, least=2, most=2)
def _count(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(sum(t.same_or_equal(item, args[1]) for item in _deque(t, args).items))


@knows(deque.index, least=2, most=2)
def _index(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    place = _deque(t, args).find(t, args[1])
    if place is None:
        t.raise_(ValueError, f"{own_text(t, args[1])} is not in deque")
    return ConstValue(place)


def own_text(t: Tracer, value: Value) -> str:
    """Returns the text of a value in a message."""
    text: str = t.call_builtin(repr, [value], {}).constant()
    return text
