"""Writes new bytecode: a growing list of instructions that hides how calls differ between versions.

In: `emit` and similar methods, called by the code that rebuilds values and splits frames. Out: `instrs`
and the stack space they need. `resume/rewrite.py` and `resume/resume_function.py` decide which code is
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frameloom.capture.bytecode.instruction import NOWHERE, Instr, Positions
from frameloom.capture.bytecode.opcodes import LOAD_CELL, PY312, PY313, stack_effect


def calls_with_top(function: Any) -> list[Instr]:
    """Returns instructions that put `function` below the value on top of the stack, as its first argument."""
    null, load = Instr("PUSH_NULL"), Instr("LOAD_CONST", function)
    pushed = (load, null) if PY313 else (null, load)
    return [part for instr in pushed for part in (instr, Instr("SWAP", 2))]


def called(load: Instr) -> list[Instr]:
    """Returns the instruction, which pushes a callable alone, and those that add the NULL for a call."""
    return [load, Instr("PUSH_NULL"), *([] if PY313 else [Instr("SWAP", 2)])]


class CodeBuilder:
    """New instructions of one frame. `arguments`: the opcode that loads each slot on entry."""

    def __init__(self, arguments: dict[str, str], positions: Positions = NOWHERE) -> None:
        self.instrs: list[Instr] = []
        self.temporaries: list[str] = []
        self.depth = 0
        self.max_depth = 0
        self._arguments = arguments  # name -> the opcode that loads it
        self._positions = positions

    def place(self, positions: Positions) -> None:
        """Sets the source position of new instructions."""
        self._positions = positions

    def emit(
        self, op: str, arg: Any = None, *, flags: int = 0, target: Instr | None = None
    ) -> Instr:
        instr = Instr(op, arg, flags=flags, target=target, positions=self._positions)
        self.instrs.append(instr)
        self.depth += stack_effect(op, instr.number(), jump=False)
        self.max_depth = max(self.max_depth, self.depth)
        return instr

    def load_const(self, value: Any) -> None:
        self.emit("LOAD_CONST", value)

    def load_argument(self, name: str) -> None:
        self.emit(self._arguments[name], name)

    def load_attr(self, name: str) -> None:
        self.emit("LOAD_ATTR", name)

    def load_globals(self) -> None:
        """Pushes the frame's globals. There is no opcode for it, so this calls the builtin, whatever its name
        is bound to."""
        self.call_const(globals)

    def load_cell(self, name: str) -> None:
        self.emit(LOAD_CELL, name)

    def call(self, count: int, names: tuple[str, ...] = ()) -> None:
        """Calls the callable below `count` arguments, the last of which are keyword arguments with these
        `names`. `start_callable` comes before what pushes the callable, `end_callable` after it."""
        if PY313 and names:
            self.load_const(names)
            self.emit("CALL_KW", count)
            return
        if names:
            self.emit("KW_NAMES", names)
        if not PY312:
            self.emit("PRECALL", count)
        self.emit("CALL", count)

    def start_callable(self) -> None:
        if not PY313:  # the NULL is below the callable
            self.emit("PUSH_NULL")

    def end_callable(self) -> None:
        if PY313:  # the NULL is above it
            self.emit("PUSH_NULL")

    def start_call(self, function: Any) -> None:
        self.start_callable()
        self.load_const(function)
        self.end_callable()

    def start_call_after(self, function: Any) -> None:
        """Puts `function` below the value on top of the stack, which is its first argument."""
        for instr in calls_with_top(function):
            self.emit(instr.op, instr.arg)

    def call_const(self, function: Any, *constants: Any) -> None:
        self.start_call(function)
        for constant in constants:
            self.load_const(constant)
        self.call(len(constants))

    def call_const_after(self, function: Any, constants: Sequence[Any] = ()) -> None:
        """Calls `function` with the value on top of the stack and then `constants`."""
        self.start_call_after(function)
        for constant in constants:
            self.load_const(constant)
        self.call(1 + len(constants))

    def temporary(self) -> str:
        name = f".t{len(self.temporaries)}"
        self.temporaries.append(name)
        return name

    def store(self, name: str) -> None:
        self.emit("STORE_FAST", name)

    def load(self, name: str) -> None:
        self.emit("LOAD_FAST", name)

    def move(self, name: str) -> None:
        """Pushes the variable's value and deletes the variable."""
        self.load(name)
        self.emit("DELETE_FAST", name)

    def clear_and_delete(self, name: str) -> None:
        """Empties the list in the variable and deletes the variable."""
        self.start_call(list.clear)
        self.move(name)
        self.call(1)
        self.emit("POP_TOP")

    def subscript(self, index: Any) -> None:
        self.load_const(index)
        self.emit("BINARY_SUBSCR")
