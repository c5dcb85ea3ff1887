"""Products, permutations and combinations of itertools, in Python (see `polyfill.py`)."""

from __future__ import annotations

import itertools
from typing import Any

from frameloom.capture.library.polyfill import iterator


class Combinatoric:
    """Base class. `rows`: all combinations of positions in `pools`."""

    at: int
    rows: list[Any]
    pools: Any

    def __next__(self) -> Any:
        if self.at >= len(self.rows):
            raise StopIteration
        row = self.rows[self.at]
        self.at += 1
        return tuple([pool[place] for pool, place in zip(self.pools, row, strict=True)])


def _after(result: Any, count: int) -> Any:
    for _ in range(count):
        next(result, None)
    return result


@iterator(itertools.product)
class Product(Combinatoric):
    def __init__(self, *iterables: Any, repeat: int = 1) -> None:
        self.pools = [tuple(iterable) for iterable in iterables] * repeat
        rows: list[Any] = [()]
        for pool in self.pools:
            rows = [(*row, place) for row in rows for place in range(len(pool))]
        self.rows = rows
        self.at = 0

    @staticmethod
    def left(pools: Any, rows: Any, at: Any) -> Any:
        return _after(itertools.product(*pools), at)


def _chosen(count: int, length: int, kind: str) -> list[Any]:
    rows: list[Any] = [()]
    for _ in range(length):
        longer = []
        for row in rows:
            for place in range(count):
                if kind == "permutations":
                    fits = place not in row
                elif not row:
                    fits = True
                else:
                    fits = place > row[-1] if kind == "combinations" else place >= row[-1]
                if fits:
                    longer.append((*row, place))
        rows = longer
    return rows


def _rest(real: Any) -> Any:
    """Returns the `left` of an iterator over choices from one pool."""

    def left(pools: Any, rows: Any, at: Any) -> Any:
        return _after(real(pools[0] if pools else (), len(pools)), at)

    return staticmethod(left)


@iterator(itertools.permutations)
class Permutations(Combinatoric):
    def __init__(self, iterable: Any, r: Any = None) -> None:
        pool = tuple(iterable)
        length = len(pool) if r is None else r
        self.pools = [pool] * length
        self.rows = _chosen(len(pool), length, "permutations")
        self.at = 0

    left = _rest(itertools.permutations)


@iterator(itertools.combinations)
class Combinations(Combinatoric):
    def __init__(self, iterable: Any, r: Any) -> None:
        pool = tuple(iterable)
        self.pools = [pool] * r
        self.rows = _chosen(len(pool), r, "combinations")
        self.at = 0

    left = _rest(itertools.combinations)


@iterator(itertools.combinations_with_replacement)
class CombinationsWithReplacement(Combinatoric):
    def __init__(self, iterable: Any, r: Any) -> None:
        pool = tuple(iterable)
        self.pools = [pool] * r
        self.rows = _chosen(len(pool), r, "replacement")
        self.at = 0

    left = _rest(itertools.combinations_with_replacement)
