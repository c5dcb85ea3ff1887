"""The iterators of itertools except those in `combinatorics.py`, in Python (see `polyfill.py`)."""

from __future__ import annotations

import itertools
from typing import Any

from frameloom.capture.library.polyfill import in_python, iterator

NOTHING: Any = object()


@iterator(itertools.count)
class Count:
    def __init__(self, start: Any = 0, step: Any = 1) -> None:
        for number in (start, step):
            if type(number) is not int and not isinstance(number, complex):
                of = type(number)
                if not any(hasattr(of, name) for name in ("__index__", "__int__", "__float__")):
                    raise TypeError("a number is required")
        self.start = start
        self.step = step

    def __next__(self) -> Any:
        value = self.start
        self.start = value + self.step
        return value

    left = itertools.count


@iterator(itertools.cycle)
class Cycle:
    def __init__(self, iterable: Any) -> None:
        self.source = iter(iterable)
        self.saved: list[Any] = []
        self.at = -1  # in the first round

    def __next__(self) -> Any:
        if self.at < 0:
            for item in self.source:
                self.saved.append(item)
                return item
            self.at = 0
        if not self.saved:
            raise StopIteration
        item = self.saved[self.at]
        self.at = (self.at + 1) % len(self.saved)
        return item

    @staticmethod
    def left(source: Any, saved: Any, at: Any) -> Any:
        result = itertools.cycle(itertools.chain(saved, source))
        for _ in range(len(saved) if at < 0 else at):
            next(result)
        return result


@iterator(itertools.repeat)
class Repeat:
    def __init__(self, object: Any, times: Any = None) -> None:
        self.item = object
        self.times = times

    def __next__(self) -> Any:
        if self.times is not None:
            if self.times <= 0:
                raise StopIteration
            self.times -= 1
        return self.item

    @staticmethod
    def left(item: Any, times: Any) -> Any:
        return itertools.repeat(item) if times is None else itertools.repeat(item, times)


class ChainState:
    rest: Any
    now: Any

    def __next__(self) -> Any:
        while True:
            for item in self.now:
                return item
            self.now = iter(next(self.rest))

    @staticmethod
    def left(rest: Any, now: Any) -> Any:
        return itertools.chain.from_iterable(itertools.chain([now], rest))


@iterator(itertools.chain)
class Chain(ChainState):
    def __init__(self, *iterables: Any) -> None:
        self.rest = iter(iterables)
        self.now = iter(())


@iterator(itertools.chain, itertools.chain.from_iterable)
class ChainFromIterable(ChainState):
    def __init__(self, iterable: Any) -> None:
        self.rest = iter(iterable)
        self.now = iter(())


@iterator(itertools.islice)
class Islice:
    def __init__(self, iterable: Any, *bounds: Any) -> None:
        start, stop, step = bounds if len(bounds) == 3 else ((*bounds, 1) if len(bounds) == 2 else (0, bounds[0], 1))  # fmt: skip
        start, stop, step = self.number(start, 0), self.number(stop, None), self.number(step, 1)
        if stop == -1:
            raise ValueError(
                "Stop argument for islice() must be None or an integer: 0 <= x <= sys.maxsize."
            )
        if start < 0 or (stop is not None and stop < 0):
            raise ValueError(
                "Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize."
            )
        if step < 1:
            raise ValueError("Step for islice() must be a positive integer or None.")
        self.source = iter(iterable)
        self.skip = start  # items to drop before the next one
        self.room = None if stop is None else stop - start
        self.step = step
        if self.room is not None and self.room < 0:
            self.skip += self.room  # the items up to stop are still used up
            self.room = 0

    @staticmethod
    def number(bound: Any, otherwise: Any) -> Any:
        if bound is None or type(bound) is int:
            return otherwise if bound is None else bound
        try:
            return type(bound).__index__(bound)
        except (AttributeError, TypeError):
            return -1

    def __next__(self) -> Any:
        while self.skip > 0:
            next(self.source)
            self.skip -= 1
        if self.room is not None:
            if self.room <= 0:
                raise StopIteration
            item = next(self.source)
            self.skip = min(self.step - 1, self.room - 1)
            self.room -= self.step
            return item
        item = next(self.source)
        self.skip = self.step - 1
        return item

    @staticmethod
    def left(source: Any, skip: Any, room: Any, step: Any) -> Any:
        stop = None if room is None else skip + max(room, 0)
        return itertools.islice(source, skip, stop, step)


@iterator(itertools.accumulate)
class Accumulate:
    def __init__(self, iterable: Any, func: Any = None, *, initial: Any = None) -> None:
        self.source = iter(iterable)
        self.func = func
        self.initial = initial
        self.total = NOTHING

    def __next__(self) -> Any:
        if self.total is NOTHING:
            self.total = next(self.source) if self.initial is None else self.initial
        else:
            item = next(self.source)
            self.total = self.total + item if self.func is None else self.func(self.total, item)
        return self.total

    @staticmethod
    def left(source: Any, func: Any, initial: Any, total: Any) -> Any:
        if total is NOTHING:
            return itertools.accumulate(source, func, initial=initial)
        if total is None:
            return itertools.islice(itertools.accumulate(itertools.chain([total], source), func), 1, None)  # fmt: skip
        result = itertools.accumulate(source, func, initial=total)
        next(result)
        return result


@iterator(itertools.compress)
class Compress:
    def __init__(self, data: Any, selectors: Any) -> None:
        self.data = iter(data)
        self.selectors = iter(selectors)

    def __next__(self) -> Any:
        while True:
            item = next(self.data)
            if next(self.selectors):
                return item

    left = itertools.compress


@iterator(itertools.filterfalse)
class FilterFalse:
    def __init__(self, function: Any, iterable: Any) -> None:
        self.function = function
        self.source = iter(iterable)

    def __next__(self) -> Any:
        while True:
            item = next(self.source)
            if not (item if self.function is None else self.function(item)):
                return item

    left = itertools.filterfalse


@iterator(itertools.dropwhile)
class DropWhile:
    def __init__(self, predicate: Any, iterable: Any) -> None:
        self.predicate = predicate
        self.source = iter(iterable)
        self.started = False

    def __next__(self) -> Any:
        while True:
            item = next(self.source)
            if self.started or not self.predicate(item):
                self.started = True
                return item

    @staticmethod
    def left(predicate: Any, source: Any, started: Any) -> Any:
        return itertools.dropwhile(_never if started else predicate, source)


@iterator(itertools.takewhile)
class TakeWhile:
    def __init__(self, predicate: Any, iterable: Any) -> None:
        self.predicate = predicate
        self.source = iter(iterable)
        self.ended = False

    def __next__(self) -> Any:
        if not self.ended:
            item = next(self.source)
            if self.predicate(item):
                return item
            self.ended = True
        raise StopIteration

    @staticmethod
    def left(predicate: Any, source: Any, ended: Any) -> Any:
        return itertools.takewhile(predicate, () if ended else source)


def _never(item: Any) -> bool:
    return False


@iterator(itertools.starmap)
class StarMap:
    def __init__(self, function: Any, iterable: Any) -> None:
        self.function = function
        self.source = iter(iterable)

    def __next__(self) -> Any:
        return self.function(*next(self.source))

    left = itertools.starmap


@iterator(itertools.zip_longest)
class ZipLongest:
    def __init__(self, *iterables: Any, fillvalue: Any = None) -> None:
        self.sources = [iter(iterable) for iterable in iterables]
        self.fill = fillvalue

    def __next__(self) -> Any:
        items, has_item = [], False
        for place in range(len(self.sources)):
            item = self.fill
            if self.sources[place] is not None:
                item = next(self.sources[place], NOTHING)
                if item is NOTHING:
                    item = self.fill
                    self.sources[place] = None  # type: ignore[call-overload]
                else:
                    has_item = True
            items.append(item)
        if not has_item:
            raise StopIteration
        return tuple(items)

    @staticmethod
    def left(sources: Any, fill: Any) -> Any:
        open_ones = (() if source is None else source for source in sources)
        return itertools.zip_longest(*open_ones, fillvalue=fill)


@iterator(itertools.pairwise)
class Pairwise:
    def __init__(self, iterable: Any) -> None:
        self.source = iter(iterable)
        self.before = NOTHING

    def __next__(self) -> Any:
        if self.before is NOTHING:
            self.before = next(self.source)
        before, self.before = self.before, next(self.source)
        return before, self.before

    @staticmethod
    def left(source: Any, before: Any) -> Any:
        return itertools.pairwise(
            source if before is NOTHING else itertools.chain([before], source)
        )


@iterator(itertools.groupby)
class GroupBy:
    """It has no `left`, since its groups share its position."""

    def __init__(self, iterable: Any, key: Any = None) -> None:
        self.source = iter(iterable)
        self.function = key
        self.value = self.key = NOTHING  # the next item, and its key
        self.target = NOTHING  # the key of the last group
        self.group: Any = NOTHING  # the mark of the group that may continue

    def __next__(self) -> Any:
        self.group = NOTHING
        while self.key is NOTHING or (self.target is not NOTHING and self.key in (self.target,)):
            self.advance()
        self.target = self.key
        self.group = [self.key]
        return self.key, Group(self, self.group)

    def advance(self) -> None:
        value = next(self.source)
        self.key = value if self.function is None else self.function(value)
        self.value = value


@iterator(type(next(itertools.groupby("a"))[1]))
class Group:
    def __init__(self, owner: Any, group: list[Any]) -> None:
        self.owner = owner
        self.group = group

    def __next__(self) -> Any:
        owner = self.owner
        if owner.group is not self.group:
            raise StopIteration
        if owner.value is NOTHING:
            owner.advance()
        # the comparison may use it up
        if owner.key not in (self.group[0],) or owner.value is NOTHING:
            raise StopIteration
        value, owner.value, owner.key = owner.value, NOTHING, NOTHING
        return value


if hasattr(itertools, "batched"):

    @iterator(itertools.batched)
    class Batched:
        def __init__(self, iterable: Any, n: int) -> None:
            if n < 1:
                raise ValueError("n must be at least one")
            self.source = iter(iterable)
            self.n = n

        def __next__(self) -> Any:
            items = []
            for item in self.source:
                items.append(item)
                if len(items) == self.n:
                    break
            if not items:
                raise StopIteration
            return tuple(items)

        left = itertools.batched  # type: ignore[attr-defined]


@in_python(itertools.tee)
def tee(iterable: Any, n: int = 2) -> Any:
    if n < 0:
        raise ValueError("n must be >= 0")
    source = iter(iterable)
    waiting: list[Any] = [[] for _ in range(n)]
    running: list[Any] = []
    return tuple([Branch(source, waiting, own, running) for own in waiting])


@iterator(type(itertools.tee("")[0]))
class Branch:
    """It has no `left`, since the branches share their source."""

    def __init__(self, source: Any, waiting: list[Any], own: Any, running: list[Any]) -> None:
        self.source = source
        self.waiting = waiting
        self.own = own
        self.running = running  # not empty while the source runs

    def __next__(self) -> Any:
        if not self.own:
            if self.running:
                raise RuntimeError("cannot re-enter the tee iterator")
            self.running.append(True)
            try:
                item = next(self.source)
            finally:
                self.running.clear()
            for other in self.waiting:
                other.append(item)
        return self.own.pop(0)
