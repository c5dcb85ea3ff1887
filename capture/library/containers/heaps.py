"""heapq, bisect and similar functions, in Python."""

from __future__ import annotations

import bisect
import functools
import heapq
import logging
from typing import Any

from frameloom.capture.library.polyfill import in_python


@in_python(heapq.heappush)
def heappush(heap: Any, item: Any) -> None:
    heap.append(item)
    _sift_down(heap, 0, len(heap) - 1)


@in_python(heapq.heappop)
def heappop(heap: Any) -> Any:
    last = heap.pop()
    if heap:
        first = heap[0]
        heap[0] = last
        _sift_up(heap, 0)
        return first
    return last


@in_python(heapq.heapreplace)
def heapreplace(heap: Any, item: Any) -> Any:
    first = heap[0]
    heap[0] = item
    _sift_up(heap, 0)
    return first


@in_python(heapq.heappushpop)
def heappushpop(heap: Any, item: Any) -> Any:
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        _sift_up(heap, 0)
    return item


@in_python(heapq.heapify)
def heapify(heap: Any) -> None:
    for place in reversed(range(len(heap) // 2)):
        _sift_up(heap, place)


def _sift_down(heap: Any, start: int, place: int) -> None:
    item = heap[place]
    while place > start:
        parent = (place - 1) >> 1
        if not item < heap[parent]:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def _sift_up(heap: Any, place: int) -> None:
    end, start, item = len(heap), place, heap[place]
    child = 2 * place + 1
    while child < end:
        right = child + 1
        if right < end and not heap[child] < heap[right]:
            child = right
        heap[place] = heap[child]
        place, child = child, 2 * child + 1
    heap[place] = item
    _sift_down(heap, start, place)


@in_python(heapq.nlargest)
def nlargest(n: int, iterable: Any, key: Any = None) -> Any:
    return sorted(iterable, key=key, reverse=True)[: max(n, 0)]


@in_python(heapq.nsmallest)
def nsmallest(n: int, iterable: Any, key: Any = None) -> Any:
    return sorted(iterable, key=key)[: max(n, 0)]


@in_python(bisect.bisect_right, bisect.bisect)
def bisect_right(a: Any, x: Any, lo: int = 0, hi: Any = None, *, key: Any = None) -> int:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


@in_python(bisect.bisect_left)
def bisect_left(a: Any, x: Any, lo: int = 0, hi: Any = None, *, key: Any = None) -> int:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


@in_python(bisect.insort_right, bisect.insort)
def insort(a: Any, x: Any, lo: int = 0, hi: Any = None, *, key: Any = None) -> None:
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


@in_python(bisect.insort_left)
def insort_left(a: Any, x: Any, lo: int = 0, hi: Any = None, *, key: Any = None) -> None:
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


@in_python(logging.Logger.isEnabledFor)
def is_enabled_for(self: Any, level: int) -> bool:
    """Does the same as the original, without the logger's cache."""
    if self.disabled or self.manager.disable >= level:
        return False
    return bool(level >= self.getEffectiveLevel())


class CompareKey:
    """The result of functools.cmp_to_key for an item."""

    def __init__(self, compare: Any, item: Any) -> None:
        self.compare = compare
        self.item = item

    def __lt__(self, other: Any) -> bool:
        return bool(self.compare(self.item, other.item) < 0)


@in_python(functools.cmp_to_key)
def cmp_to_key(mycmp: Any) -> Any:
    return functools.partial(CompareKey, mycmp)
