"""collections.deque: a list with a limit, used from both ends."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from frameloom.capture import _capture
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import (
    ListValue,
    SequenceValue,
    SliceValue,
    plain,
)
from frameloom.capture.values.containers.iterator import (
    ITERABLES,
    REVERSIBLE,
    SequenceIterator,
)
from frameloom.capture.values.kinds import container, kind

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


@container(deque)
class DequeValue(ListValue):
    """A deque with at most `limit` items."""

    def __init__(self, items: list[Value], limit: int | None = None) -> None:
        super().__init__(items if limit is None else items[max(len(items) - limit, 0) :])
        self.limit = limit

    def constant(self) -> Any:
        return deque([plain(item) for item in self.items], self.limit)

    def like(self, items: list[Value]) -> SequenceValue:
        return DequeValue(items, self.limit)

    def replace(self, t: Tracer, items: list[Value], from_left: bool = False) -> None:
        """Sets its items; the limit drops some at the other end."""
        t.change(self)
        over = len(items) - self.limit if self.limit is not None else 0
        if over > 0:
            items = items[: len(items) - over] if from_left else items[over:]
        self.items = items
        self.reshaped += 1

    def append(self, t: Tracer, item: Value) -> None:
        self.replace(t, [*self.items, item])

    def take(self, t: Tracer, place: int) -> Value:
        """Removes and returns an item."""
        if not self.items:
            t.raise_(IndexError, "pop from an empty deque")
        items = list(self.items)
        item = items.pop(place)
        self.replace(t, items)
        return t.look(item)

    def extend(self, t: Tracer, source: Value) -> None:
        for batch in t.batches(source):
            self.replace(t, [*self.items, *batch])

    def extend_left(self, t: Tracer, source: Value) -> None:
        for batch in t.batches(source):
            self.replace(t, [*batch[::-1], *self.items], from_left=True)

    def getitem(self, t: Tracer, key: Value) -> Value:
        if isinstance(key, SliceValue):
            t.raise_(TypeError, "sequence index must be integer, not 'slice'")
        index = t.index(key)
        if not -len(self.items) <= index < len(self.items):
            t.raise_(IndexError, "deque index out of range")
        return t.look(self.items[index])

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        self.getitem(t, key)
        t.change(self)
        self.items[t.index(key)] = value

    def delitem(self, t: Tracer, key: Value) -> None:
        self.getitem(t, key)
        t.change(self)
        self.reshaped += 1
        del self.items[t.index(key)]

    def iterate(self, t: Tracer) -> Value:
        return DequeIterator(self)

    def reverse(self, t: Tracer) -> Value:
        return DequeReversed(self)

    def getattr(self, t: Tracer, name: str) -> Value:
        if name == "maxlen":
            return ConstValue(self.limit)
        return t.instance_attribute(self, name)

    def key(self, t: Tracer) -> Any:
        t.raise_(TypeError, "unhashable type: 'collections.deque'")

    def rebuild(self, r: Rebuilder) -> None:
        r.call(deque, (), self.limit)
        r.keep(self)
        if self.items:
            r.do(deque.extend, self, self.items)


@kind(deque)
def _existing(t: Tracer, real: deque[Any], origin: Origin) -> DequeValue:
    t.guards.add(origin, "type", deque)
    value = DequeValue.existing(t, real, origin)
    value.limit = real.maxlen
    t.guards.add(origin.child("attr", "maxlen"), "equal", real.maxlen)
    return value


class DequeIterator(SequenceIterator):
    over: DequeValue

    def __init__(self, over: DequeValue) -> None:
        super().__init__(over, None)
        self.reshaped = over.reshaped

    def type(self) -> type:
        return type(self.make(deque()))

    def fault(self) -> str | None:
        return None if self.over.reshaped == self.reshaped else "deque mutated during iteration"


class DequeReversed(DequeIterator):
    """The `reversed` of a deque. Unlike the iterator of `iter`, it raises only once, and not after its end."""

    make = reversed

    def __init__(self, over: DequeValue) -> None:
        super().__init__(over)
        self.count = len(over.items)

    def _item(self, t: Tracer) -> Value | None:
        return self.over.items[-1 - self.position] if self.position < self.count else None

    def step(self, t: Tracer) -> Value | None:
        if (fault := self.fault()) is not None:
            t.change(self)
            self.ended = True
            t.raise_(RuntimeError, fault)
        return super().step(t)

    def fault(self) -> str | None:
        return None if self.ended or self.position >= self.count else super().fault()


_capture.add_sequence_type(deque)
ITERABLES.append(deque())
REVERSIBLE.append(deque())
