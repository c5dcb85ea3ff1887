"""Undoes assumptions about sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from frameloom.ir.symbolic.expr import Atom
from frameloom.ir.symbolic.ranges import Ranges


class UndoableRanges(Ranges):
    """Ranges with an undo log: call `mark` before assumptions that may fail, and `take_back` to undo them."""

    def __init__(self) -> None:
        super().__init__()
        # Inferred results of ops (capture/shapes/inferred_cache.py).
        self.inferred: dict[Any, Any] = {}
        self._undo: list[Callable[[], Any]] = []

    def _record_undo(self, table: dict[Any, Any], key: Any) -> None:
        """Records how `take_back` restores this entry of the table; to be called before the entry changes."""
        self._cache.clear()
        if key in table:
            self._undo.append(partial(table.__setitem__, key, table[key]))
        else:
            self._undo.append(partial(table.pop, key, None))

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Sets an entry of the table; `take_back` restores it."""
        self._record_undo(table, key)
        table[key] = value

    def _narrow(self, atom: Atom, low: float, high: float) -> None:
        """Assumes that a factor is from `low` to `high`."""
        least, most = self._ranges[atom]
        self._set(self._ranges, atom, (max(least, low), min(most, high)))

    def mark(self) -> int:
        """Returns a position for `take_back`."""
        return len(self._undo)

    def take_back(self, mark: int) -> None:
        """Undoes all assumptions since `mark`, and drops the inferred results that depend on them."""
        if len(self._undo) > mark:
            self.inferred.clear()
        while len(self._undo) > mark:
            self._undo.pop()()
            self._cache.clear()
