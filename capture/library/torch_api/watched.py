"""Detects whether a part of the program changes anything that existed before it.

Such a part cannot run at another time than in the program, or more than once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Value

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import Frame
    from frameloom.capture.interpreter.tracer import Tracer


class Watched:
    """Watches for changes from now on; `given`: the arguments of the part."""

    def __init__(self, t: Tracer, given: list[Value]) -> None:
        self.t = t
        self.mark = t.mark()
        self.draws = len(t.draws)
        self.settings = t.settings.states()
        self.turns = t.settings.turns
        self.memories = {
            id(f.memory): (f.memory, f.memory.version) for f in t.recorder.fakes if f.memory
        }
        self.seen: dict[int, Value] = {}
        self._reach(given)
        frame: Frame | None = t.frame
        while frame is not None:
            self._reach([*frame.slots.values(), *frame.stack, *frame.before, *frame.closure])
            frame = frame.parent

    def _reach(self, values: list[Value]) -> None:
        stack = list(values)
        while stack:
            value: Any = stack.pop()
            value = getattr(value, "realized", None) or value
            if id(value) in self.seen:
                continue
            self.seen[id(value)] = value
            if getattr(value, "origin", None) is None or id(value) in self.t.changed:
                stack += value.parts()

    def changed(self) -> str | None:
        """Returns what it has changed so far, None if nothing."""
        t = self.t
        if any(v.origin is not None or id(v) in self.seen for v in t.changed_since(self.mark)):
            return "objects"
        fresh = [f.memory for _, _, f in t.recorder.inputs if id(f.memory) not in self.memories]
        if any(memory.version != version for memory, version in self.memories.values()) or any(
            memory.version for memory in fresh
        ):
            return "tensors"
        changes = t.settings.have_changed(self.settings)
        if changes or t.settings.turns != self.turns or len(t.draws) != self.draws:
            return "settings"
        return None
