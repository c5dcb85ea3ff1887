"""The table of handlers and the decorator that fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frameloom.capture.frame import Frame
    from frameloom.capture.instr import Instr

Handler = Callable[["Frame", "Instr"], "Instr | None"]
TABLE: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for these opcodes."""

    def register(function: Handler) -> Handler:
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = function
        return function

    return register
