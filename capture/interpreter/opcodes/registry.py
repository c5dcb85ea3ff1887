"""The table of handlers and the decorator that fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame

Handler = Callable[["Frame", "Instr"], "Instr | None"]
TABLE: dict[str, Handler] = {}
ATOMIC: set[str] = set()


def handles(*names: str, atomic: bool = False) -> Callable[[Handler], Handler]:
    """Registers a handler for these opcodes. `atomic`: the handler changes nothing if it raises, so no state
    is saved to undo it."""

    def register(function: Handler) -> Handler:
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = function
            if atomic:
                ATOMIC.add(name)
        return function

    return register
