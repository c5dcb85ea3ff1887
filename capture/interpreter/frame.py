"""Runs one frame: stack, slots, exceptions of the program, and the state at a graph break.

A frame runs until it returns, yields, or cannot continue. `opcodes/` defines each instruction. When an
instruction breaks, everything it did is undone, and `Broken` carries the states of all frames between the
captured function and the one that broke, as they were before their current instruction.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from types import CodeType
from typing import TYPE_CHECKING

import torch

from frameloom.capture.bytecode.instruction import Instr
from frameloom.capture.interpreter import opcodes
from frameloom.capture.values.base import NotConstant, Raised, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.function import CellValue
from frameloom.errors import Break, Where

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.values.containers.dictionary import DictValue


# How an instruction may fail: the program raises, it cannot be captured, or our own limits are reached.
RAISING = ("exception", "op_error", "unbound")  # kinds of breaks where the program raises
CAUSES = (Raised, Break, NotConstant, RecursionError, MemoryError, OverflowError)


@dataclass
class FrameState:
    """A frame before its current instruction. If the frame is inside a call, `stack` is the part below the
    call's operands."""

    code: CodeType
    globals: DictValue
    at: Instr
    stack: list[Value]
    slots: dict[str, Value]
    shown: frozenset[str] = (
        frozenset()
    )  # variables that are not read again, but that tracebacks and debuggers show


class Broken(Exception):
    """Ends the capture. `states`: from the captured function's frame to the innermost frame that can be
    resumed."""

    def __init__(
        self, cause: Break, states: list[FrameState], where: Where, raises: bool = False
    ) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.raises = raises  # the instruction at the break is known to raise
        self.states = states
        self.where = where


@dataclass
class Point:
    """Where the program raised, with all that is needed to return to this state."""

    states: list[FrameState]
    mark: int
    where: Where


class Frame:
    """One activation of a Python function."""

    def __init__(
        self,
        t: Tracer,
        code: CodeType,
        globals_: DictValue,
        slots: dict[str, Value],
        closure: list[CellValue],
        resumable: bool = False,
        root: bool = False,
    ) -> None:
        self.t = t
        self.code = code
        self.instrs = opcodes.linked(code)
        self.at = self.instrs[0]
        self.globals = globals_
        self.slots = slots
        self.closure = closure
        self.resumable = resumable
        self.root = root
        self.stack: list[Value] = []
        self.kwnames: tuple[str, ...] = ()
        self.result: Value | None = None
        self.suspended = False
        self.parent: Frame | None = None
        self.call_base: int | None = None  # stack below a call that was entered in the middle
        self.before: list[Value] = []
        self.mark = 0

    # --- the stack
    def pop(self) -> Value:
        """Pops the top and resolves a lazy value."""
        return self.t.look(self.stack.pop())

    def pop_raw(self) -> Value:
        """Pops the top and leaves a lazy value lazy, for instructions that only move it."""
        return self.stack.pop()

    def pop_many(self, count: int) -> list[Value]:
        if count == 0:
            return []
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def push(self, value: Value) -> None:
        self.stack.append(value)

    # --- running
    def run(self, thrown: Raised | None = None) -> Value:
        """Runs the frame until it returns (the result) or yields (`suspended` is set)."""
        t = self.t
        outer, self.parent = t.frame, t.frame
        t.frame = self
        t.entered.append(self.code)
        t.depth += 1
        self.result, self.suspended = None, False
        try:
            if thrown is not None:
                self._keep()
                self._stopped(thrown)
            while self.result is None:
                at = self.at
                t.count_step()
                if not at.atomic:
                    self._keep()
                try:
                    target = at.run(self, at)
                except CAUSES as cause:
                    if at.atomic:
                        self._keep()
                    self._stopped(cause)
                else:
                    self.at = target or at.next
        finally:
            t.frame = outer
            t.depth -= 1
        return self.result

    def _keep(self) -> None:
        """Saves what is needed to undo the current instruction."""
        self.before = self.stack[:]
        self.mark = self.t.mark()

    def _stopped(self, cause: Exception) -> None:
        """Handles a failed instruction: jumps to the program's handler, or ends the capture."""
        if self.t.trying:
            raise cause
        if isinstance(cause, Raised):
            if cause.point is None:
                site = self.code, self.at.index
                if self.t.session.is_avoided(*site):
                    raise self._broken(Break("exception", cause.value.describe())) from cause
                # A handler of the program cannot be split: if it raises, a break moves back to where the
                # handled exception was raised.
                cause.point = self.t.handling[0].point if self.t.handling else self.point()
                cause.value.raised_at(self.t, site)  # type: ignore[attr-defined]
                self.t.raised.append(cause)
            self.handle(cause)
            return
        if isinstance(cause, NotConstant):
            reason = Break("opaque_object", self.at.op)
        elif isinstance(cause, Break):
            reason = cause
        else:
            reason = Break("too_large", f"{type(cause).__name__} while capturing")
        raise self._broken(reason) from cause

    def enter_call(self) -> None:
        """Marks that the frame is inside a call; its stack is the part below the call."""
        self._keep()
        self.call_base = len(self.stack)

    def leave_call(self, result: Value) -> None:
        self.call_base = None
        self.push(result)
        self.at = self.at.next

    def handle(self, raised: Raised) -> None:
        """Jumps to the handler in the exception table, or raises in the caller."""
        self.call_base = None
        handler = self.at.handler
        if handler is None:
            raise raised
        del self.stack[handler.depth :]
        if handler.lasti:
            self.push(ConstValue(self.at.index))
        self.push(raised.value)
        raised.value.raised = raised  # type: ignore[attr-defined]
        self.at = handler.target

    def _broken(self, cause: Break) -> Broken:
        t = self.t
        if t.handling:  # a handler of the program cannot be split: the program raises for itself
            return broken_at(t, t.handling[0].point, cause)
        return broken_at(t, self.point(), cause)

    def point(self) -> Point:
        """Returns the state before the current instruction. It has only frames that can be resumed, the
        captured function's first. The other frames are part of the last one's instruction."""
        chain: list[Frame] = []
        frame: Frame | None = self
        while frame is not None:
            chain.append(frame)
            frame = frame.parent
        chain.reverse()
        kept = 1
        while kept < len(chain) and chain[kept].resumable:
            kept += 1
        last = chain[kept - 1]
        states = [frame.state(inside_call=True) for frame in chain[: kept - 1]]
        return Point([*states, last.state(inside_call=False)], last.mark, self.user_where())

    def state(self, inside_call: bool) -> FrameState:
        stack = self.before
        if inside_call:
            base = (
                self.call_base
                if self.call_base is not None
                else len(stack) - call_operands(self.at)
            )
            stack = stack[:base]
        return FrameState(self.code, self.globals, self.at, list(stack), dict(self.slots))

    def where(self) -> Where:
        line, _, column, end_column = self.at.positions
        return Where(
            self.code.co_filename,
            line or self.code.co_firstlineno,
            column,
            end_column,
            self.code.co_qualname,
        )

    def user_where(self) -> Where:
        """Returns the place in the user's own code. A frame of PyTorch or the standard library is named
        beside its caller."""
        frame: Frame | None = self
        while frame is not None and is_library(frame.code.co_filename):
            frame = frame.parent
        if frame is None or frame is self:
            return self.where()
        own = self.where()
        return replace(frame.where(), inside=f"{short_path(own.file)}:{own.line} in {own.function}")

    def lookup(self, name: str) -> CellValue:
        cell = self.slots[name]
        assert isinstance(cell, CellValue)
        return cell


LIBRARIES = (os.path.dirname(os.__file__) + os.sep, os.path.dirname(torch.__file__) + os.sep)


def is_library(file: str) -> bool:
    """Whether a file belongs to PyTorch or the standard library."""
    return file.startswith(LIBRARIES[1]) or (
        file.startswith(LIBRARIES[0]) and "site-packages" not in file
    )


def short_path(file: str) -> str:
    """Returns the path from the library's own folder on."""
    for folder, keep in zip(LIBRARIES[::-1], ("torch" + os.sep, ""), strict=True):
        if file.startswith(folder):
            return keep + file.removeprefix(folder)
    return file


def call_operands(at: Instr) -> int:
    """Returns how many stack entries a call instruction pops."""
    if at.op == "CALL_FUNCTION_EX":
        return 3 + (at.arg & 1)
    assert at.op in ("CALL", "CALL_KW"), at
    return int(at.arg) + (3 if at.op == "CALL_KW" else 2)


def broken_at(t: Tracer, point: Point, cause: Break) -> Broken:
    """Undoes everything since `point`."""
    t.take_back(point.mark)
    raises = bool(t.handling) or cause.kind in RAISING
    return Broken(cause, point.states, point.where, raises)
