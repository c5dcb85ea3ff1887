"""The undo log of a capture: undoes an instruction that cannot be captured."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from frameloom.capture.values.base import Effect, Value


class Journal:
    """An undo log: call `mark` before a step that may fail, and `take_back` to undo the step."""

    def __init__(self) -> None:
        self.changed: dict[int, Value] = {}  # in the order of the first change
        self._journal: list[tuple[Value, Any] | Callable[[], Any]] = []

    def change(self, value: Value) -> None:
        """Saves the value's state; called before it changes."""
        self._journal.append((value, value.snapshot()))
        if id(value) not in self.changed:
            self.changed[id(value)] = value

    def on_undo(self, action: Callable[[], Any]) -> None:
        self._journal.append(action)

    def mark(self) -> int:
        return len(self._journal)

    def changed_since(self, mark: int) -> list[Value]:
        """Returns the values that were changed since `mark`, even if they were changed back."""
        return [step[0] for step in self._journal[mark:] if isinstance(step, tuple)]

    def pending(self, unseen: Collection[int] = ()) -> list[Effect]:
        """Returns the writes that are due. `unseen`: ids of values that only this call can see."""
        due = [v for v in self.changed.values() if v.is_shared_with_caller and id(v) not in unseen]
        return [effect for value in due for effect in value.effects(self)]

    def take_back(self, mark: int) -> None:
        """Undoes every change since `mark`."""
        while len(self._journal) > mark:
            entry = self._journal.pop()
            if callable(entry):
                entry()
            else:
                entry[0].restore(entry[1])
