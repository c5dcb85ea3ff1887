"""In which order a node's gradients are to be handed to autograd, so that leaves get theirs in the order in which eager gives them.

Hooks of parameters tell.  Autograd puts what is ready into a heap; leaves go before all other nodes, and are alike to it, so
that the order in which they come out depends on the order in which they went in alone: what `std::pop_heap` of GNU's library does.
Which inputs are leaves is taken from the call that is captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def handed_over(leaves: Sequence[T], others: Sequence[T]) -> list[T]:
    """`leaves` and then `others`, so ordered that the leaves come out of the heap as they are given."""
    count = len(leaves)
    # The others lie below, at the end.
    placed = dict(zip(_popped([*range(count)], len(others)), leaves, strict=True))
    return [*(placed[k] for k in range(count)), *others]


def _popped(leaves: list[int], others: int) -> list[int]:
    """`leaves` in the order in which they come out of a heap that was filled with them and then with `others` lesser ones."""
    heap = [*leaves, *[-1] * others]
    out = []
    while heap and heap[0] >= 0:
        out.append(heap[0])
        last = heap.pop()
        if heap:
            _sink(heap, last)
    return out


def _sink(heap: list[int], value: int) -> None:
    """The first place is free, and `value` without one."""
    hole, size = 0, len(heap)
    while 2 * hole + 1 < size:
        child = 2 * hole + 2
        if child >= size or (heap[child] < 0 <= heap[child - 1]):
            child -= 1
        heap[hole] = heap[child]
        hole = child
    while hole and heap[(hole - 1) // 2] < 0 <= value:
        heap[hole] = heap[(hole - 1) // 2]
        hole = (hole - 1) // 2
    heap[hole] = value
