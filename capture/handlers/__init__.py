"""What each instruction does: `TABLE` maps an opcode's name to a function `(frame, instr) -> None | the instruction to go to`.

One file per family; each registers its functions with `handles`.  A handler pops, asks the value layer, pushes.  An opcode
without a handler is a break that names it.
"""

from __future__ import annotations

from frameloom.capture.handlers import calls, containers, exceptions, jumps, load_store, operators
from frameloom.capture.handlers.registry import TABLE

__all__ = ["TABLE", "calls", "containers", "exceptions", "jumps", "load_store", "operators"]
