"""Resume functions: a function's code entered in its middle, with the state of its frame as arguments.

In: a `ResumeSpec`, which has the place and the form of the state. Out: `make_resume`, which makes a real
function that continues there in plain Python, and `enter`, with which the interpreter continues there. Both
take the same state:
  of the inner frames (see below) | local variables and cells | values on the stack

The function takes it as one list and empties that, so that a variable it deletes is the last to hold its
value.

A spec with an `inner` spec stands for a frame inside a call: first the inner frame runs, and its result is
that of the call.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.emitter import CodeBuilder, calls_with_top
from frameloom.capture.bytecode.instruction import Handler, Instr, assemble, decode
from frameloom.capture.bytecode.liveness import bound_before, implicit_super
from frameloom.capture.bytecode.opcodes import LOAD_CELL, PY313
from frameloom.capture.interpreter.frame import Frame
from frameloom.capture.interpreter.last_references import check_ends
from frameloom.capture.values.base import NULL, Raised, Value

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer

PLAIN_FLAGS = 0x1 | 0x2  # optimized, new locals; no *args, no **kwargs


@dataclass(frozen=True, eq=False)
class ResumeSpec:
    code: CodeType
    globals: dict[str, Any]
    index: int  # the instruction to resume at; with `inner`, the active call
    slots: tuple[str, ...]  # variables passed, in slot order
    cells: frozenset[str]  # those of them that are cells
    stack: tuple[bool, ...]  # bottom first; False is a NULL, which is not passed
    inner: ResumeSpec | None = None

    @property
    def key(self) -> Any:
        inner = self.inner.key if self.inner is not None else None
        return (
            id(self.code),
            id(self.globals),
            self.index,
            self.slots,
            self.cells,
            self.stack,
            inner,
        )

    @property
    def inner_count(self) -> int:
        return self.inner.count if self.inner is not None else 0

    @property
    def count(self) -> int:
        return self.inner_count + len(self.slots) + sum(self.stack)

    @property
    def parameters(self) -> list[str]:
        """Returns the names of the variables that receive the state."""
        names = [f".i{n}" for n in range(self.inner_count)]
        return [*names, *self.slots, *(f".s{n}" for n in range(sum(self.stack)))]


STATE = ".state"  # the argument: a list of the values for `parameters`
SPEC, INNER = "__frameloom_resume__", "__frameloom_inner__"
MADE = "__frameloom_made__"  # marks a break function


def spec_of(function: FunctionType) -> ResumeSpec | None:
    """Returns the spec of a resume function, None for any other function."""
    return function.__dict__.get(SPEC)


def is_made(function: FunctionType) -> bool:
    """Whether new code calls this function, and relies on how it takes and passes on its state: the frame
    hook must not replace its code."""
    return SPEC in function.__dict__ or MADE in function.__dict__


def make_resume(spec: ResumeSpec) -> FunctionType:
    """Returns the function that continues in plain Python."""
    writer = FrameWriter(spec.code, spec.parameters, spec.cells)
    writer.code.place(decode(spec.code)[spec.index].positions)
    writer.enter()
    writer.code.clear_and_delete(STATE)
    push_stack(writer.code, spec)
    body = writer.copy_body()
    inner: FunctionType | None = None
    if spec.inner is None:
        writer.jump(body, call_start(decode(spec.code), spec.index))
    else:
        inner = make_resume(spec.inner)
        writer.call_inner(inner, spec.inner_count, body[spec.index])
        writer.jump(body, spec.index + 1)
    writer.append(body)
    function = writer.function(spec.globals)
    function.__dict__[SPEC] = spec
    function.__dict__[INNER] = inner  # the code refers to it weakly
    return function


def push_stack(code: CodeBuilder, spec: ResumeSpec) -> None:
    number = 0
    for present in spec.stack:
        if present:
            code.move(f".s{number}")
            number += 1
        else:
            code.emit("PUSH_NULL")


def call_start(instrs: list[Instr], index: int) -> int:
    """Returns where to enter a call: KW_NAMES and PRECALL before it set state that is not on the stack."""
    is_call = instrs[index].op == "CALL"
    while is_call and index and instrs[index - 1].op in ("PRECALL", "KW_NAMES"):
        index -= 1
    return index


def with_operands(operands: tuple[Any, type, Any]) -> Any:
    """Called from new code: returns what to call in place of a function without arguments. `super` reads the
    first argument of its frame, which is the state here."""
    function, cls, first = operands
    return partial(super, cls, first) if function is super else function


def call_super(operands: tuple[Any, type, Any]) -> Any:
    """Called from new code in place of `super()`, which may be another function of that name."""
    return with_operands(operands)()


def packed_call(function: Any) -> list[Instr]:
    """Returns instructions that call the function with a tuple of the three values on top of the stack."""
    call = CodeBuilder({})
    call.call(1)
    return [Instr("BUILD_TUPLE", 3), *calls_with_top(function), *call.instrs]


def above_null() -> list[Instr]:
    """Returns instructions that exchange a function and the NULL above it, if the version has it there."""
    return [Instr("SWAP", 2)] if PY313 else []


class FrameWriter:
    """Writes code for a frame like that of `original`, which gets its whole state in one list, with cells as
    cells."""

    keeps_layout = False  # whether arguments and free variables have the slots of the original

    def __init__(self, original: CodeType, parameters: list[str], cells: frozenset[str]) -> None:
        self.original = original
        self.parameters = parameters
        self.preludes: dict[int, list[Instr]] = {}
        self.code = CodeBuilder(
            {name: LOAD_CELL if name in cells else "LOAD_FAST" for name in parameters}
        )

    def enter(self) -> None:
        """Writes code that stores the values of the list in the variables. The list is emptied as soon as the
        call can no longer bail out."""
        self.code.emit("RESUME", 0)
        self.code.load(STATE)
        self.code.emit("UNPACK_SEQUENCE", len(self.parameters))
        for name in self.parameters:
            self.code.store(name)

    def incoming(self) -> list[str]:
        """Returns the variables that have a value when the frame is entered."""
        return self.parameters

    def copy_body(self) -> list[Instr]:
        """Returns copies of all instructions, by their index in the original."""
        originals = decode(self.original)
        copies = [instr.copy() for instr in originals]
        handlers: dict[int, Handler] = {}
        for copy in copies:
            if copy.target is not None:
                copy.target = copies[copy.target.index]
            if copy.handler is not None:
                old = copy.handler
                copy.handler = handlers.setdefault(
                    id(old), Handler(copies[old.target.index], old.depth, old.lasti)
                )
        self.preludes = {} if self.keeps_layout else self._explicit_super(copies)
        return copies

    def _explicit_super(self, copies: list[Instr]) -> dict[int, list[Instr]]:
        """Gives each `super()` without arguments its operands. Returns the instructions to put before others,
        by index."""
        code = self.original
        preludes: dict[int, list[Instr]] = {}
        bound, first = bound_before(code), code.co_varnames[:1]
        for call, start in implicit_super(code).items():
            # Where the program may have deleted the argument, another function must not need it.
            if bound[call].issuperset(first) or copies[start - 1].arg == "super":
                loads = [self._variable("__class__"), self._variable(*first)]
                preludes[start] = [
                    *above_null(),
                    *loads,
                    *packed_call(with_operands),
                    *above_null(),
                ]
        for instr in copies:
            if instr.op == "LOAD_SUPER_ATTR" and not instr.flags & 2:
                instr.op, instr.flags = "LOAD_ATTR", instr.flags & 1
                preludes[instr.index] = packed_call(call_super)
        for index, prelude in preludes.items():
            for instr in prelude:
                instr.positions, instr.handler = copies[index].positions, copies[index].handler
        return preludes

    def _variable(self, name: str) -> Instr:
        return Instr("LOAD_DEREF" if name in self.cell_names() else "LOAD_FAST", name)

    def append(self, body: list[Instr]) -> None:
        """Adds the copied body without the instructions that set up a frame."""
        start = next(n for n, instr in enumerate(body) if instr.op == "RESUME") + 1
        for position in range(start, len(body)):
            self.code.instrs += [*self.preludes.get(position, ()), body[position]]

    def cell_names(self) -> frozenset[str]:
        return frozenset(self.original.co_cellvars + self.original.co_freevars)

    def jump(self, body: list[Instr], index: int) -> None:
        """Writes a jump to an instruction of the copied body."""
        target = self.preludes[index][0] if index in self.preludes else body[index]
        self.code.emit("JUMP_FORWARD", target=target)

    def call_inner(self, function: FunctionType, count: int, at: Instr) -> None:
        """Writes a call of a function with the inner frames' state in place of the call at `at`: same
        handler, same source position."""
        self.code.start_callable()
        self.code.call_const(weakref.ref(function))
        self.code.end_callable()
        for number in range(count):
            self.code.move(f".i{number}")
        start = len(self.code.instrs)
        self.code.emit("BUILD_LIST", count)
        self.code.call(1)
        for instr in self.code.instrs[start:]:
            instr.handler, instr.positions = at.handler, at.positions

    def function(self, namespace: dict[str, Any]) -> FunctionType:
        """Returns the function. Its free variables stay free variables, so that unset ones raise the same
        error; the cells come with the state."""
        code = self.finish()
        closure = tuple(CellType() for _ in code.co_freevars)
        function = FunctionType(code, namespace, self.original.co_name, None, closure)
        function.__qualname__ = self.original.co_qualname
        return function

    def finish(self) -> CodeType:
        code = self.original
        names = [STATE, *(name for name in self.parameters if name not in code.co_freevars)]
        names += [name for name in code.co_varnames if name not in names]
        names += self.code.temporaries
        return assemble(
            self.code.instrs,
            code,
            varnames=names,
            cellvars=code.co_cellvars,
            freevars=code.co_freevars,
            stacksize=code.co_stacksize + self.code.max_depth + 8,
            co_argcount=1,
            co_posonlyargcount=0,
            co_kwonlyargcount=0,
            co_flags=PLAIN_FLAGS,
        )


# --- resuming in the interpreter


def enter(t: Tracer, spec: ResumeSpec, slots: tuple[Any, ...]) -> Value:
    """Interprets from the place of `spec`, with the resume function's arguments; returns the result."""
    t.options.resumed = True
    names = spec.parameters
    origins = [t.roots.argument(position, name) for position, name in enumerate(names)]
    return _enter(t, spec, list(zip(slots, origins, strict=True)), root=True)


def _keeps_result(spec: ResumeSpec) -> bool:
    """Whether the next instruction stores the top of the stack in a variable, or drops it."""
    at = decode(spec.code)[spec.index]
    return spec.inner is None and at.op.startswith(("STORE_FAST", "POP_TOP"))


def _operand(t: Tracer, obj: Any, origin: Origin) -> Value:
    """Returns a value of the stack. Since 3.12 a comprehension keeps there the cell of a variable that it
    hides."""
    value = t.wrap(obj, origin)
    return t.look(value) if isinstance(obj, CellType) else value


def _enter(t: Tracer, spec: ResumeSpec, state: list[tuple[Any, Origin]], root: bool) -> Value:
    inner_state, own = state[: spec.inner_count], state[spec.inner_count :]
    # A variable of the outermost frame is dropped when the call ends, or where the interpreter sees it.
    first = len(spec.slots) if root else 0
    if not root or not _keeps_result(spec):
        check_ends(t, own[first:])
    slots: dict[str, Value] = {}
    for name, (obj, origin) in zip(spec.slots, own, strict=False):
        slots[name] = t.cell(obj, origin) if name in spec.cells else t.wrap(obj, origin)
    frame = Frame(
        t, spec.code, t.globals_table(spec.globals, None), slots, [], resumable=not root, root=False
    )
    values = iter(own[len(spec.slots) :])
    frame.stack = [_operand(t, *next(values)) if present else NULL for present in spec.stack]
    frame.at = frame.instrs[spec.index]
    if spec.inner is None:
        return frame.run()
    frame.enter_call()
    outer, frame.parent, t.frame = t.frame, t.frame, frame
    try:
        result = _enter(t, spec.inner, inner_state, root=False)
    except Raised as raised:
        t.frame = outer
        frame.handle(raised)
    else:
        t.frame = outer
        frame.leave_call(result)
    return frame.run()
