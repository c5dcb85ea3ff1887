"""The order in which a node must hand gradients to autograd, so that leaves get theirs in eager's order.

Hooks of parameters can see the order. Autograd puts ready nodes into a heap. Leaves come before all other
nodes and compare equal, so the order in which they leave the heap depends only on the order of insertion: on
what `std::pop_heap` of GNU's library does. The captured call decides which inputs are leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def insertion_order(leaves: Sequence[T], others: Sequence[T]) -> list[T]:
    """Returns `leaves` and then `others`, in an order in which the leaves leave the heap in the given
    order."""
    count = len(leaves)
    # The others compare lower, and stay at the end.
    placed = dict(zip(_popped([*range(count)], len(others)), leaves, strict=True))
    return [*(placed[k] for k in range(count)), *others]


def _popped(leaves: list[int], others: int) -> list[int]:
    """Returns `leaves` in the order in which they leave a heap that was filled with them and then with
    `others` lower elements."""
    heap = [*leaves, *[-1] * others]
    out = []
    while heap and heap[0] >= 0:
        out.append(heap[0])
        last = heap.pop()
        if heap:
            _sink(heap, last)
    return out


def _sink(heap: list[int], value: int) -> None:
    """Inserts `value` into a heap whose first place is free."""
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
