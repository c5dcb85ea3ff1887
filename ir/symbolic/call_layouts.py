"""Assumptions of one call about symbolic sizes that matter only for the strides of its results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frameloom.ir.symbolic.expr import Int, Size


@dataclass(eq=False, slots=True)
class AssumedSizes:
    not_1: set[Size] = field(default_factory=set)
    # Not 1; results that are computed from this call's results do not depend on it.
    alone: set[Size] = field(default_factory=set)
    not_0: set[Size] = field(default_factory=set)
    # Differences of strides and products of sizes that are assumed to be other than 0 if no size is 1.
    apart: set[Size] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.not_1 or self.alone or self.not_0 or self.apart)

    def clear(self) -> None:
        self.not_1.clear()
        self.alone.clear()
        self.not_0.clear()
        self.apart.clear()

    def conditions(self) -> Iterator[Int]:
        """Yields the sizes that are not 0 if all assumptions hold."""
        yield from (n - 1 for n in self.not_1 | self.alone)
        yield from self.not_0 | self.apart

    def add(self, other: AssumedSizes) -> None:
        self.not_1 |= other.not_1
        self.alone |= other.alone
        self.not_0 |= other.not_0
        self.apart |= other.apart
