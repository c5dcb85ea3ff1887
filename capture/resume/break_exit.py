"""The end of a frame at a break: runs the instruction that broke, then leaves with the state behind it.

In: the states of the frames at the break. Out: the tail of each frame's new code, and the specs of the resume
functions for every exit. Exits are numbered: first the successors of the innermost instruction, then
the normal return of each inlined call, innermost first.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.emitter import called
from frameloom.capture.bytecode.instruction import Handler, Instr, decode
from frameloom.capture.bytecode.opcodes import (
    END_FOR_LENGTH,
    NO_FALLTHROUGH,
    PY312,
    PY313,
    TAKES_BOOL,
    results,
    stack_effect,
)
from frameloom.capture.resume import trampoline
from frameloom.capture.resume.lifetime import Lifetimes
from frameloom.capture.resume.resume_function import (
    MADE,
    STATE,
    FrameWriter,
    ResumeSpec,
    call_start,
    make_resume,
    push_stack,
)
from frameloom.capture.values.base import NULL
from frameloom.capture.values.function import CellValue

if TYPE_CHECKING:
    from frameloom.capture.bytecode.emitter import CodeBuilder
    from frameloom.capture.driver.capture_call import Capture
    from frameloom.capture.interpreter.frame import FrameState

# What the frame of an inlined call, the captured function, and a resume function call where they leave.
LEAVES = trampoline.hand_up, trampoline.drive, trampoline.hand_over
LEAVES_AFTER_CALL = (
    trampoline.hand_up_after_call,
    trampoline.drive_after_call,
    trampoline.hand_over_after_call,
)
METHOD_LOADS = frozenset({"LOAD_METHOD", "LOAD_ATTR", "LOAD_SUPER_ATTR"})


def frame_spec(lifetimes: Lifetimes, state: FrameState) -> ResumeSpec:
    """Returns the state of a frame at its current instruction, as arguments."""
    return _spec_at(
        lifetimes, state, state.at.index, tuple(value is not NULL for value in state.stack)
    )


def _spec_at(
    lifetimes: Lifetimes,
    state: FrameState,
    index: int,
    stack: tuple[bool, ...],
) -> ResumeSpec:
    own = (*state.code.co_cellvars, *state.code.co_freevars)
    cells = frozenset(name for name in own if isinstance(state.slots.get(name), CellValue))
    slots = lifetimes.slots(state, index, cells)
    return ResumeSpec(state.code, state.globals.real, index, slots, cells & frozenset(slots), stack)


@dataclass
class FrameExit:
    """A successor of the innermost instruction."""

    spec: ResumeSpec
    jump: bool


def frame_exits(lifetimes: Lifetimes, state: FrameState) -> list[FrameExit]:
    at, before = state.at, [value is not NULL for value in state.stack]
    exits = []
    if at.op not in NO_FALLTHROUGH:
        exits.append(
            FrameExit(
                _spec_at(lifetimes, state, at.index + 1, _stack_after(at, before, jump=False)),
                False,
            )
        )
    if at.target is not None:
        index, stack = at.target.index, _stack_after(at, before, jump=True)
        if at.op == "FOR_ITER":
            stack = tuple(before[:-1])
            if decode(state.code)[index].op == "END_FOR":
                index += END_FOR_LENGTH
        exits.append(FrameExit(_spec_at(lifetimes, state, index, stack), True))
    return exits


def _stack_after(at: Instr, before: list[bool], jump: bool) -> tuple[bool, ...]:
    """Returns which stack entries are values after the instruction; the others are NULL."""
    depth = len(before) + stack_effect(at.op, at.number(), jump)
    if loads_method(at) or (at.op == "LOAD_GLOBAL" and at.flags & 1):
        return (*before[: depth - 2], PY313, not PY313)
    fresh = results(at.op, at.number(), jump)
    return (*before[: depth - fresh], *[True] * fresh)


def _landing(at: Instr) -> list[Instr]:
    """Returns where the jump of an instruction leads: FOR_ITER skips the end of its loop."""
    ends_loop = at.op == "FOR_ITER" and PY312
    ops = ("END_FOR", "POP_TOP")[:END_FOR_LENGTH] if ends_loop else ("NOP",)
    return [Instr(op, positions=at.positions) for op in ops]


def loads_method(at: Instr) -> bool:
    return at.op == "LOAD_METHOD" or (PY312 and at.op in METHOD_LOADS and bool(at.flags & 1))


class ExitWriter:
    """Writes the tails of all frames of one break; `specs` are their states at the break."""

    def __init__(self, capture: Capture, states: list[FrameState]) -> None:
        self.capture = capture
        self.session = capture.tracer.session
        self.states = states
        lifetimes = Lifetimes(capture.tracer, states)
        self.specs = [frame_spec(lifetimes, state) for state in states]
        self.exits = frame_exits(lifetimes, states[-1])

    # --- specs of the resume functions
    def _wrapped(self, level: int, spec: ResumeSpec) -> ResumeSpec:
        """Returns `spec`, a state of the frame at `level`, with the outer frames around it."""
        for outer in reversed(self.specs[:level]):
            spec = ResumeSpec(
                outer.code, outer.globals, outer.index, outer.slots, outer.cells, outer.stack, spec
            )
        return spec

    def _after_call(self, level: int) -> ResumeSpec:
        """Returns the spec of the frame at `level` after its call returned normally."""
        own = self.specs[level]
        spec = ResumeSpec(
            own.code, own.globals, own.index + 1, own.slots, own.cells, (*own.stack, True)
        )
        return self._wrapped(level, spec)

    def _exit_number(self, level: int) -> int:
        """Returns the number of the normal return of the call in the frame at `level`."""
        return len(self.exits) + len(self.states) - 2 - level

    def _link(self, spec: ResumeSpec) -> Any:
        jitted = self.session.resume(spec, lambda: make_resume(spec), self.capture.compiler)
        return weakref.ref(jitted)

    # --- code
    def finish_frame(self, writer: FrameWriter, level: int, driving: bool = False) -> None:
        """Writes the rest of the frame's code. Its stack and variables are already in place, with the
        operands of the inner call on top."""
        body = writer.copy_body()
        at = self.states[level].at
        if level == len(self.states) - 1:
            self._carry_out(writer, body, at, level, driving)
        else:
            inner = self.specs[level + 1 :]
            start = len(writer.code.instrs)
            writer.code.emit("BUILD_LIST", sum(len(spec.slots) + sum(spec.stack) for spec in inner))
            writer.code.call(1)
            for instr in writer.code.instrs[start:]:
                instr.handler, instr.positions = body[at.index].handler, at.positions
            self._leave_after_call(writer, level, driving)
        if at.handler is not None:
            writer.append(body)

    def _carry_out(
        self, writer: FrameWriter, body: list[Instr], at: Instr, level: int, driving: bool
    ) -> None:
        """Writes the instruction itself, under its own handler, and what follows it."""
        code, instrs = writer.code, decode(self.states[level].code)
        for index in range(call_start(instrs, at.index), at.index + 1):
            for instr in writer.preludes.get(index, ()):
                self._add(code, instr.copy())
            if index < at.index:
                self._add(code, body[index].copy())
        own = body[at.index].copy()
        own.target = None
        steps = [own]
        if loads_method(at):
            own.op, own.flags = (
                ("LOAD_ATTR", 0) if at.op == "LOAD_METHOD" else (own.op, own.flags & ~1)
            )
            steps = called(own)
        elif at.op in TAKES_BOOL:  # the interpreter asks only here for the truth of any value
            steps = [Instr("TO_BOOL"), own]
        for instr in steps:
            instr.positions, instr.handler = at.positions, own.handler
            self._add(code, instr)
        for number, frame_exit in enumerate(self.exits):
            if frame_exit.jump:
                landing = _landing(at)
                own.op = own.op.replace("BACKWARD", "FORWARD")
                own.target = landing[0]
                code.instrs += landing
            self._leave(writer, number, frame_exit, level, driving)

    def _add(self, code: CodeBuilder, instr: Instr) -> None:
        code.instrs.append(instr)
        code.max_depth += 2

    def _leave(
        self, writer: FrameWriter, number: int, frame_exit: FrameExit, level: int, driving: bool
    ) -> None:
        names = self._pop_stack(writer.code, frame_exit.spec.stack)
        target = number if level else self._link(frame_exit.spec)
        self._hand(writer.code, LEAVES, target, frame_exit.spec, names, level, driving)

    def _leave_after_call(self, writer: FrameWriter, level: int, driving: bool) -> None:
        code, spec = writer.code, self.specs[level]
        result = code.temporary()
        code.store(result)
        names = [*self._pop_stack(code, spec.stack), result]
        target = self._exit_number(level) if level else self._links()
        self._hand(code, LEAVES_AFTER_CALL, target, spec, names, level, driving)

    def _hand(
        self, code: CodeBuilder, functions: Any, target: Any, spec: ResumeSpec, names: list[str], level: int,
        driving: bool,
    ) -> None:  # fmt: skip
        """Writes a call of one of `functions` with the target and the frame's state."""
        up, drive, over = functions
        code.start_call(up if level else drive if driving else over)
        code.load_const(target)
        self._load_state(code, spec, names)
        start = len(code.instrs)
        code.emit("BUILD_LIST", len(spec.slots) + len(names))
        code.call(2)
        self._return(code, start, shown_once=driving and not level)

    def _return(self, code: CodeBuilder, start: int, shown_once: bool) -> None:
        """Writes code that returns the result of the call written at `start`. If the frame drives, tracebacks
        of its exceptions do not show it."""
        call = code.instrs[start:]
        code.emit("RETURN_VALUE")
        if not shown_once:
            return
        landing = Instr("NOP", positions=code.instrs[-1].positions)
        code.instrs.append(landing)
        for instr in call:
            instr.handler = Handler(landing, 0, False)
        code.depth = 1
        code.emit("COPY", 1)
        code.call_const_after(trampoline.show_once)
        code.emit("POP_TOP")
        code.emit("RERAISE", 0)
        code.depth = 0

    def _links(self) -> tuple[Any, ...]:
        """Returns all exits, as the captured function needs them."""
        last = len(self.states) - 1
        links = [self._link(self._wrapped(last, frame_exit.spec)) for frame_exit in self.exits]
        links += [self._link(self._after_call(level)) for level in range(last - 1, -1, -1)]
        return tuple(links)

    def _pop_stack(self, code: CodeBuilder, stack: tuple[bool, ...]) -> list[str]:
        """Moves the stack's values to temporaries; returns the names from the bottom up."""
        names = []
        for present in reversed(stack):
            name = code.temporary()
            code.store(name)
            if present:
                names.append(name)
        code.max_depth = max(code.max_depth, code.depth)
        code.depth = 0
        return names[::-1]

    def _load_state(self, code: CodeBuilder, spec: ResumeSpec, names: list[str]) -> None:
        for name in spec.slots:
            if name in spec.cells:
                code.load_cell(name)
            else:
                code.move(name)  # so the frame that is left does not keep it alive
        for name in names:
            code.move(name)

    # --- break functions of inlined calls
    def load_break_function(self, code: CodeBuilder, level: int) -> None:
        """Starts a call of the function that runs the frame at `level` and those inside it."""
        code.start_callable()
        code.call_const(weakref.ref(self.break_function(level)))
        code.end_callable()

    def break_function(self, level: int) -> FunctionType:
        state, own = self.states[level], self.specs[level]
        inner = self.specs[level + 1 :]
        count = sum(len(spec.slots) + sum(spec.stack) for spec in inner)
        names = [f".i{n}" for n in range(count)]
        parameters = [*names, *own.slots, *(f".s{n}" for n in range(sum(own.stack)))]
        writer = FrameWriter(state.code, parameters, own.cells)
        writer.code.place(state.at.positions)
        writer.enter()
        writer.code.clear_and_delete(STATE)
        push_stack(writer.code, own)
        if inner:
            self.load_break_function(writer.code, level + 1)
            for name in names:
                writer.code.move(name)
        self.finish_frame(writer, level)
        function = writer.function(own.globals)
        function.__dict__[MADE] = True
        self.session.keep(function)
        return function
