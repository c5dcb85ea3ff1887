"""What one call takes sizes for that vary, where only the strides of its results depend on that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frameloom.ir.size import Size


@dataclass(eq=False, slots=True)
class Soft:
    not_1: set[Size] = field(default_factory=set)
    # Not 1, which says nothing of what is computed from the results.
    alone: set[Size] = field(default_factory=set)
    not_0: set[Size] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.not_1 or self.alone or self.not_0)

    def clear(self) -> None:
        for sizes in (self.not_1, self.alone, self.not_0):
            sizes.clear()

    def add(self, other: Soft) -> None:
        self.not_1 |= other.not_1
        self.alone |= other.alone
        self.not_0 |= other.not_0
