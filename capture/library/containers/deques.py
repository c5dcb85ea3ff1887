"""Methods of collections.deque."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.library.builtins import method
from frameloom.capture.library.containers.iteration import knows_iterator
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE
from frameloom.capture.values.containers.container import SequenceValue
from frameloom.capture.values.containers.deque import DequeValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


for _make in (iter, reversed):
    knows_iterator(type(_make(deque())))


@knows(deque, most=2, keywords="iterable maxlen")
def _new(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("iterable", "maxlen"), args, strict=False)) | kwargs
    limit = t.look(given["maxlen"]) if "maxlen" in given else NONE
    items = t.list_items(given["iterable"]) if "iterable" in given else []
    return DequeValue(items, None if limit is NONE or limit.real is None else t.index(limit))


method(DequeValue, deque.append)(DequeValue.append)
method(DequeValue, deque.extend)(DequeValue.extend)
method(DequeValue, deque.extendleft)(DequeValue.extend_left)
method(DequeValue, deque.count)(SequenceValue.count)


@method(DequeValue, deque.appendleft)
def _appendleft(own: DequeValue, t: Tracer, item: Value) -> None:
    own.replace(t, [item, *own.items], from_left=True)


@method(DequeValue, deque.pop)
def _pop(own: DequeValue, t: Tracer) -> Value:
    return own.take(t, -1)


@method(DequeValue, deque.popleft)
def _popleft(own: DequeValue, t: Tracer) -> Value:
    return own.take(t, 0)


@method(DequeValue, deque.clear)
def _clear(own: DequeValue, t: Tracer) -> None:
    own.replace(t, [])


@method(DequeValue, deque.copy, deque.__copy__)
def _copy(own: DequeValue, t: Tracer) -> Value:
    return own.like(list(own.items))


@method(DequeValue, deque.rotate)
def _rotate(own: DequeValue, t: Tracer, steps: Value | None = None) -> None:
    if own.items:
        count = (1 if steps is None else t.index(steps)) % len(own.items)
        own.replace(t, own.items[len(own.items) - count :] + own.items[: len(own.items) - count])


@method(DequeValue, deque.reverse)
def _reverse(own: DequeValue, t: Tracer) -> None:
    own.replace(t, own.items[::-1])


@method(DequeValue, deque.insert)
def _insert(own: DequeValue, t: Tracer, place: Value, item: Value) -> None:
    if own.limit is not None and len(own.items) >= own.limit:
        t.raise_(IndexError, "deque already at its maximum size")
    items = list(own.items)
    items.insert(t.index(place), item)
    own.replace(t, items)


@method(DequeValue, deque.remove)
def _remove(own: DequeValue, t: Tracer, item: Value) -> None:
    place = _index(own, t, item)
    own.replace(t, own.items[:place] + own.items[place + 1 :])


@method(DequeValue, deque.index)
def _index(own: DequeValue, t: Tracer, item: Value) -> int:
    place = own.find(t, item)
    if place is None:
        text = t.call_builtin(repr, [item], {}).constant()
        t.raise_(ValueError, f"{text} is not in deque")
    return place
