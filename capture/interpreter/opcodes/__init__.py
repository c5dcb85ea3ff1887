"""Handlers of opcodes.

`TABLE` maps an opcode's name to a function `(frame, instr) -> None | the instruction to jump to`. There is
one file per family; each registers its functions with `handles`. A handler pops values, calls their methods,
and pushes the result. Opcodes without a handler are in `unsupported.py` with the reason, and break the graph.
"""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from frameloom.capture.bytecode.instruction import decode, per_code
from frameloom.capture.interpreter.opcodes import (
    calls,
    containers,
    coroutines,
    exceptions,
    from_313,
    jumps,
    load_store,
    matching,
    operators,
)
from frameloom.capture.interpreter.opcodes.registry import ATOMIC, TABLE
from frameloom.capture.interpreter.opcodes.unsupported import why
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame


@per_code
def linked(code: CodeType) -> list[Instr]:
    """Returns the code's instructions, each with its handler and the next instruction."""
    instrs = decode(code)
    for instr, after in zip(instrs, [*instrs[1:], None], strict=True):
        instr.run = TABLE.get(instr.op, unsupported)
        instr.atomic = instr.op in ATOMIC
        instr.next = after
    return instrs


def unsupported(frame: Frame, ins: Instr) -> None:
    reason = why(ins.op)
    raise Break("opcode", ins.op if reason is None else f"{ins.op}: {reason}")


__all__ = [
    "TABLE",
    "calls",
    "containers",
    "coroutines",
    "exceptions",
    "from_313",
    "jumps",
    "linked",
    "load_store",
    "matching",
    "operators",
]
