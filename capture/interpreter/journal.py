"""Every change of the state of a capture, so that an instruction that cannot be captured is taken back whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frameloom.capture.values.base import Value


class Journal:
    """`mark` before something is tried, `take_back` to that mark where it fails."""

    def __init__(self) -> None:
        self.changed: dict[int, Value] = {}  # values that changed, in order of their first change
        self._journal: list[tuple[Value, Any] | Callable[[], Any]] = []

    def change(self, value: Value) -> None:
        """Called before a value changes."""
        self._journal.append((value, value.snapshot()))
        if id(value) not in self.changed:
            self.changed[id(value)] = value

    def on_undo(self, action: Callable[[], Any]) -> None:
        self._journal.append(action)

    def mark(self) -> int:
        return len(self._journal)

    def has_changed(self, value: Value, mark: int) -> bool:
        """Whether it was changed since `mark`, whatever it is now."""
        return any(type(step) is tuple and step[0] is value for step in self._journal[mark:])

    def take_back(self, mark: int) -> None:
        """Undo every change since `mark`."""
        while len(self._journal) > mark:
            entry = self._journal.pop()
            if callable(entry):
                entry()
            else:
                entry[0].restore(entry[1])
