"""Spaces of small cases: all of them, or some that a seed picks."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Space:
    """`check(*case)` for every choice of one value for each name: what is wrong, or None.  SKIPPED where there is nothing to check."""

    name: str
    check: Callable[..., Any]
    choices: Sequence[Sequence[Any]]

    def __len__(self) -> int:
        return math.prod(map(len, self.choices))

    def all(self) -> Iterator[tuple[Any, ...]]:
        return itertools.product(*self.choices)

    def some(self, count: int, seed: int = 0) -> Iterator[tuple[Any, ...]]:
        """All, if they are no more than that."""
        if len(self) <= count:
            yield from self.all()
            return
        rng = random.Random(f"{self.name} {seed}")
        for _ in range(count):
            yield tuple(rng.choice(values) for values in self.choices)


SKIPPED = "skipped"


@dataclass
class Tally:
    checked: int = 0
    skipped: int = 0
    wrong: int = 0
    first: str = ""  # that is wrong

    def add(self, space: Space, cases: Iterator[tuple[Any, ...]]) -> Tally:
        for case in cases:
            found = space.check(*case)
            if found is SKIPPED:
                self.skipped += 1
                continue
            self.checked += 1
            if found is not None:
                self.wrong += 1
                self.first = self.first or f"{space.name} {case}: {found}"
        return self
