"""Items of values that can be iterated."""

from __future__ import annotations

from collections.abc import Iterator

from frameloom.capture.interpreter.object_table import ObjectTable
from frameloom.capture.values.base import Value
from frameloom.capture.values.containers.container import SequenceValue, TupleValue
from frameloom.capture.values.containers.iterator import IteratorValue, SequenceIterator
from frameloom.errors import Break


class Iteration(ObjectTable):
    """Iterates over values as the program would."""

    def items(self, value: Value) -> list[Value]:
        """Returns the items of a known sequence without copying."""
        if isinstance(value, SequenceValue):
            return value.items
        payload = getattr(value, "payload", None)
        if isinstance(payload, SequenceValue):
            return payload.items
        raise Break("opaque_iterable", f"items of {value.describe()}")

    def iterator(self, value: Value) -> IteratorValue:
        iterator = self.look(value).iterate(self)
        if not hasattr(iterator, "step"):
            raise Break("opaque_iterable", f"iteration over {iterator.describe()}")
        return iterator  # type: ignore[return-value]

    def each(self, value: Value) -> Iterator[Value]:
        """Yields the items one by one: the caller handles one item before the next is made."""
        iterator = self.iterator(value)
        while (item := iterator.step(self)) is not None:
            yield item
            self.count_step()

    def batches(self, value: Value) -> Iterator[list[Value]]:
        """Yields the items of an iterable for a container that takes them in: one by one if code of the
        program makes them, since it may look at the container in between."""
        iterator = self.iterator(value)
        if isinstance(iterator, SequenceIterator) and not iterator.asks_program:
            yield self.list_items(iterator)
        else:
            yield from ([item] for item in self.each(iterator))

    def list_items(self, value: Value) -> list[Value]:
        """Returns all items of an iterable, which is used up."""
        return list(self.each(value))

    def sized_items(self, value: Value) -> list[Value]:
        """Like `list_items`, for places where CPython also reads the object's length hint."""
        value = self.look(value)
        iterator = self.iterator(value)
        value.length_hint(self)
        return self.list_items(iterator)

    def tuple_of(self, value: Value) -> TupleValue:
        return TupleValue(self.list_items(value))
