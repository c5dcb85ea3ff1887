"""Conditions on sizes: guards check them, or compiled code does if it gets the sizes as numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frameloom.ir.symbolic.atoms import evaluated
from frameloom.ir.symbolic.expr import Size, Symbol


@dataclass(frozen=True)
class Conditions:
    """Sizes that must be at least 0, sizes that must be 0, and sizes that must not be 0."""

    at_least_0: tuple[Size, ...]
    zero: tuple[Size, ...]
    not_0: tuple[Size, ...]

    def __str__(self) -> str:
        kinds = ((self.at_least_0, ">="), (self.zero, "=="), (self.not_0, "!="))
        return ", ".join(f"{n!r} {sign} 0" for sizes, sign in kinds for n in sizes)

    def hold(self, value: Callable[[Symbol], int]) -> bool:
        return (
            all(evaluated(n, value) >= 0 for n in self.at_least_0)
            and all(evaluated(n, value) == 0 for n in self.zero)
            and all(evaluated(n, value) != 0 for n in self.not_0)
        )
