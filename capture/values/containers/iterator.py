"""Iterators: over sequences, and the lazy ones that builtins make.

Each has its position as plain state and advances by `step`. New code rebuilds it as the same kind of
iterator at the same position, so that a loop can continue after a break.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Effect, Value, ignoring
from frameloom.capture.values.identity import identity_key
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.object import ObjectValue


LIST_ITERATOR = type(iter([]))
# Empty objects of the classes that have iterators of their own. The file of a container adds its own.
REVERSIBLE: list[Any] = [(), [], {}, {}.values(), {}.items()]
ITERABLES: list[Any] = [*REVERSIBLE, set(), "", b"", range(0)]


class IteratorValue(Value):
    """An iterator made during the capture."""

    is_true = True

    def step(self, t: Tracer) -> Value | None:
        """Returns the next item, None at the end."""
        raise NotImplementedError

    def iterate(self, t: Tracer) -> Value:
        return self

    def key(self, t: Tracer) -> Any:
        return identity_key(t, self)

    def getattr(self, t: Tracer, name: str) -> Value:
        return t.instance_attribute(self, name)


def advanced(iterator: Any, count: int) -> Any:
    """Called from new code: advances `iterator` by `count` items, some of which a list may have lost since
    then."""
    if type(iterator) is LIST_ITERATOR:  # it accepts no position past the end
        over = iterator.__reduce__()[1][0]
        missing = max(0, count - list.__len__(over))
        list.extend(over, [None] * missing)
        set_position(iterator, count)
        list.__delitem__(over, slice(list.__len__(over) - missing, None))
        return iterator
    if hasattr(iterator, "__setstate__"):
        return set_position(iterator, count)
    for _ in range(count):
        next(iterator)
    return iterator


def set_position(iterator: Any, position: int) -> Any:
    """Called from new code."""
    iterator.__setstate__(position)
    return iterator


def ended_iterator(cls: type) -> Any:
    """Called from new code: returns an iterator of this class that has ended."""
    made = [*map(iter, ITERABLES), *map(reversed, REVERSIBLE), iter(_Indexed())]
    iterator = next(it for it in made if type(it) is cls)
    next(iterator, None)
    return iterator


def failing_iterator(fault: str) -> Any:
    """Called from new code: returns an iterator that raises, as those of containers do after a change."""

    def fail() -> Any:
        raise RuntimeError(fault)
        yield

    return fail()


def advance(iterator: Any, count: int, ended: bool) -> None:
    """Called from new code: replays the use of an iterator."""
    for _ in range(count):
        next(iterator)
    if ended:
        next(iterator, None)


class SequenceIterator(IteratorValue):
    """Iterates over a value whose items are known (`items`), or over a list or range that is read again at
    each step. Once it has ended it stays ended."""

    def __init__(self, over: Value, items: list[Value] | None, position: int = 0) -> None:
        self.over = over
        self.items = items
        self.position = self.start = position  # `start`: position before the call
        self.ended = False

    make: Any = iter  # the function that makes it of `over`
    asks_program = False  # whether a step runs code of the program

    def type(self) -> type:
        if self.cls is not None:
            return self.cls  # type: ignore[no-any-return]
        return (
            type(iter(self.over.type()()))
            if self.over.type() in (list, tuple, str, bytes, dict, set, frozenset)
            else type(iter(range(0)))
        )

    def fault(self) -> str | None:
        """Returns the text of the error that Python's iterator raises now, because of changes since it was
        made; None if there is none."""
        return None

    def step(self, t: Tracer) -> Value | None:
        if (fault := self.fault()) is not None:
            t.raise_(RuntimeError, fault)
        if self.ended:
            return None
        item = self._item(t)
        t.change(self)
        if item is None:
            self.ended = True
        else:
            self.position += 1
        return item

    def _item(self, t: Tracer) -> Value | None:
        if self.items is None and isinstance(self.over.real, range):
            numbers = self.over.real
            return t.from_python(numbers[self.position]) if self.position < len(numbers) else None
        items = self.items if self.items is not None else t.items(self.over)
        return items[self.position] if self.position < len(items) else None

    def effects(self, t: Tracer) -> list[Effect]:
        count = self.position - self.start
        return [Effect(self, advance, count, self.ended)] if count or self.ended else []

    def snapshot(self) -> Any:
        return self.position, self.ended

    def restore(self, saved: Any) -> None:
        self.position, self.ended = saved

    def parts(self) -> list[Value]:
        return [] if self.ended else [self.over]

    def rebuild(self, r: Rebuilder) -> None:
        if (fault := self.fault()) is not None:
            r.call(failing_iterator, fault)
        elif self.ended:
            r.call(ended_iterator, self.type())
        else:
            self._rebuild_running(r)

    def _rebuild_running(self, r: Rebuilder) -> None:
        r.load(self.over)
        if self.make is iter:
            r.code.emit("GET_ITER")
        else:
            r.code.call_const_after(self.make)
        if self.position:
            r.code.call_const_after(advanced, (self.position,))


class ReversedIterator(SequenceIterator):
    """The `reversed` of a list or tuple: starts at its original end, and reads a list again at each step."""

    def __init__(self, over: Value, left: int) -> None:
        super().__init__(over, None)
        self.left = left

    def type(self) -> type:
        return type(reversed([])) if self.over.type() is list else reversed

    def _item(self, t: Tracer) -> Value | None:
        items = t.items(self.over)
        return items[self.left - 1] if 0 < self.left <= len(items) else None

    def step(self, t: Tracer) -> Value | None:
        t.change(self)
        item = super().step(t)
        if item is not None:
            self.left -= 1
        return item

    def snapshot(self) -> Any:
        return self.position, self.ended, self.left

    def restore(self, saved: Any) -> None:
        self.position, self.ended, self.left = saved

    def _rebuild_running(self, r: Rebuilder) -> None:
        r.call(reversed_from, self.over, self.left)


def reversed_from(over: Any, left: int) -> Any:
    """Called from new code: returns `reversed(over)` with `left` items left. When `reversed` was called, the
    list may have had more items than now, and it may get them back before the next step."""
    missing = left - len(over)
    if missing <= 0 or type(over) is not list:
        return set_position(reversed(over), left - 1)
    over += [None] * missing
    result = set_position(reversed(over), left - 1)
    del over[-missing:]
    return result


class BuiltinIterator(IteratorValue):
    """enumerate, zip, map, filter, reversed...: `make` is the class, `arguments` and `kwargs` are the
    program's arguments, `pull` is one step."""

    def __init__(
        self, make: type, arguments: list[Value], kwargs: dict[str, Value], pull: Any
    ) -> None:
        self.make = make
        self.arguments = arguments
        self.kwargs = kwargs
        self.pull = pull

    def type(self) -> type:
        return self.make

    def step(self, t: Tracer) -> Value | None:
        item: Value | None = self.pull(t)
        return item

    def parts(self) -> list[Value]:
        return [*self.arguments, *self.kwargs.values()]

    def rebuild(self, r: Rebuilder) -> None:
        r.call(self.make, *self.arguments, **self.kwargs)


class EnumerateValue(BuiltinIterator):
    """`enumerate`: its count is separate state, since the inner iterator is rebuilt at its current
    position."""

    mutable = ("count",)

    def __init__(self, inner: IteratorValue, count: int) -> None:
        super().__init__(enumerate, [inner], {}, None)
        self.inner = inner
        self.count = count

    def step(self, t: Tracer) -> Value | None:
        # imports this module
        from frameloom.capture.values.containers.container import TupleValue

        item = self.inner.step(t)
        if item is None:
            return None
        t.change(self)
        self.count += 1
        return TupleValue([t.from_python(self.count - 1), item])

    def rebuild(self, r: Rebuilder) -> None:
        r.call(enumerate, self.inner, self.count)


class _Indexed:
    def __getitem__(self, index: int) -> None:
        raise IndexError


class GetitemIterator(SequenceIterator):
    """Iterates over an object that has only `__getitem__`: calls it with 0, 1, ... until it raises
    IndexError."""

    cls = type(iter(_Indexed()))
    asks_program = True

    def __init__(self, over: Value) -> None:
        super().__init__(over, None)

    def _item(self, t: Tracer) -> Value | None:
        return self._item_at(t, self.position)

    def _item_at(self, t: Tracer, index: int) -> Value | None:
        with ignoring(IndexError, StopIteration):
            return self.over.getitem(t, t.from_python(index))
        return None


class GetitemReversed(GetitemIterator):
    """The `reversed` of an object with `__len__` and `__getitem__`."""

    cls = reversed

    def __init__(self, over: Value, count: int) -> None:
        super().__init__(over)
        self.count = count

    def _item(self, t: Tracer) -> Value | None:
        index = self.count - 1 - self.position
        return self._item_at(t, index) if index >= 0 else None

    def _rebuild_running(self, r: Rebuilder) -> None:
        if self.over.type() not in (str, bytes):  # its length would be read again
            raise Break("cannot_rebuild", f"reversed({self.over.describe()})")
        r.call(reversed, self.over)
        if self.position:
            r.code.call_const_after(set_position, (self.count - 1 - self.position,))


class UserIterator(Value):
    """An object that is its own iterator, with `__next__` in Python."""

    def __init__(self, over: ObjectValue) -> None:
        self.over = over
        self.origin = over.origin
        self.real = over.real

    def type(self) -> type:
        return self.over.type()

    def iterate(self, t: Tracer) -> Value:
        return self

    def parts(self) -> list[Value]:
        return [self.over]

    def step(self, t: Tracer) -> Value | None:
        with ignoring(StopIteration):
            result = self.over.call_special(t, "__next__")
            if result is None:
                raise Break("opaque_iterable", f"next({self.over.describe()})")
            return result
        return None

    def rebuild(self, r: Rebuilder) -> None:
        r.load(self.over)
