"""Bytecode as a list of instructions with names and references, and back to a code object.

In: a code object. Out: `decode` returns one `Instr` per instruction (no caches, no EXTENDED_ARG). Its operand
is an object: a constant, a name, a local's name, the target instruction. Each has its source position and the
exception handler that covers it. `assemble` makes a code object of such a list. What the instructions do, and
which ones to write, does not belong here.

The exception table is kept per instruction (`Instr.handler`), with the stack depth that CPython recorded:
copied code keeps exactly these depths.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeVar

from frameloom.capture.bytecode.opcodes import (
    CACHES,
    CALLS_PYTHON,
    CONSTS,
    FLAG_BITS,
    JUMPS,
    NAMES,
    OPMAP,
    OPNAME,
    PAIRS,
    PY312,
    SLOTS,
)

Positions = tuple[
    int | None, int | None, int | None, int | None
]  # line, end line, column, end column
NOWHERE: Positions = (None, None, None, None)


T = TypeVar("T")


class Instr:
    """One instruction. `arg` is a constant, a name or a number, by kind of opcode. `flags` are the low bits
    beside a name. For a jump, `flags` is its number of EXTENDED_ARGs: if two lengths fit, the compiler's
    is kept. For a slot, 1 means the free variable if a cell has the same name.

    `run`, `atomic` and `next` are for the interpreter (`linked` in capture/interpreter/opcodes).
    """

    __slots__ = (
        "arg", "atomic", "flags", "handler", "index", "next", "op", "positions", "run", "target",
    )  # fmt: skip
    run: Any
    atomic: bool
    next: Instr

    def __init__(
        self,
        op: str,
        arg: Any = None,
        *,
        flags: int = 0,
        target: Instr | None = None,
        positions: Positions = NOWHERE,
        handler: Handler | None = None,
    ) -> None:
        self.op = op
        self.arg = arg
        self.flags = flags
        self.target = target
        self.positions = positions
        self.handler = handler
        self.index = -1

    def copy(self) -> Instr:
        new = Instr(
            self.op, self.arg, flags=self.flags, target=self.target, positions=self.positions
        )
        new.handler, new.index = self.handler, self.index
        return new

    def number(self) -> int | None:
        """Returns the operand in the form that `opcode.stack_effect` expects."""
        if self.op in NAMES:
            return self.flags
        if self.op in CONSTS or self.op in SLOTS or self.op in PAIRS or self.op in JUMPS:
            return 0
        return self.arg

    def __repr__(self) -> str:
        what = (
            f"-> {self.target.index}"
            if self.target is not None
            else ""
            if self.arg is None
            else repr(self.arg)
        )
        return f"{self.index:4} {self.op} {what}{f' |{self.flags}' if self.flags else ''}"


@dataclass(frozen=True, eq=False)
class Handler:
    """An entry of the exception table: where to jump, the stack depth there, and whether the raising offset
    is pushed."""

    target: Instr
    depth: int
    lasti: bool


def per_code(compute: Callable[[CodeType], T]) -> Callable[[CodeType], T]:
    """Caches the result per code object while that lives. Code objects are not hashed: that would hash their
    constants."""
    known: dict[int, tuple[weakref.ref[CodeType], T]] = {}

    @functools.wraps(compute)
    def cached(code: CodeType) -> T:
        entry = known.get(id(code))
        if entry is not None and entry[0]() is code:
            return entry[1]
        result, key = compute(code), id(code)
        known[key] = (weakref.ref(code, lambda _: known.pop(key, None)), result)
        return result

    return cached


@per_code
def decode(code: CodeType) -> list[Instr]:
    """Returns the code's instructions. The list is shared between calls for the same code object, so it must
    not be changed."""
    raw = code.co_code
    positions = list(code.co_positions())
    local_names = slot_names(code)
    instrs: list[Instr] = []
    by_offset: dict[int, Instr] = {}
    jumps: list[tuple[Instr, int]] = []
    offset, extended, start = 0, 0, 0
    while offset < len(raw):
        op, arg = OPNAME[raw[offset]], raw[offset + 1] | extended
        if op == "EXTENDED_ARG":
            extended = arg << 8
            offset += 2
            continue
        instr = Instr(op, positions=positions[offset // 2])
        after = offset + 2 + 2 * CACHES.get(op, 0)
        if op in JUMPS:
            instr.flags = (offset - start) // 2
            jumps.append((instr, after + (-2 if "BACKWARD" in op else 2) * arg))
        elif op in CONSTS:
            instr.arg = code.co_consts[arg]
        elif op in NAMES:
            bits = FLAG_BITS.get(op, 0)
            instr.arg, instr.flags = code.co_names[arg >> bits], arg & ((1 << bits) - 1)
        elif op in SLOTS:
            instr.arg = local_names[arg]
        elif op in PAIRS:
            instr.arg = local_names[arg >> 4], local_names[arg & 15]
        else:
            instr.arg = arg
        instr.index = len(instrs)
        instrs.append(instr)
        for place in range(start, offset + 2, 2):
            by_offset[place] = instr
        offset, extended = after, 0
        start = offset
    for instr, place in jumps:
        instr.target = by_offset[place]
    for begin, end, place, depth, lasti in _read_exception_table(code.co_exceptiontable):
        handler = Handler(by_offset[place], depth, lasti)
        for at in range(begin, end, 2):
            if at in by_offset:
                by_offset[at].handler = handler
    return instrs


@per_code
def names_in(code: CodeType) -> frozenset[str]:
    """Returns names of globals and attributes, also of functions defined inside."""
    inner = [names_in(c) for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(code.co_names).union(*inner)


def slot_names(code: CodeType) -> list[str]:
    """Returns the names of localsplus: locals, then cells that are not arguments, then free variables."""
    return _slots(code.co_varnames, code.co_cellvars, code.co_freevars)


def _slots(varnames: Sequence[str], cellvars: Sequence[str], freevars: Sequence[str]) -> list[str]:
    """Since 3.12 a local that only comprehensions use may have the name of a free variable; it gets a dot, so
    that names tell slots apart."""
    own = [*varnames, *(name for name in cellvars if name not in varnames)]
    return [*(f".{name}" if name in freevars else name for name in own), *freevars]


def argument_names(code: CodeType) -> list[str]:
    """Returns the names of arguments: positional, keyword-only, *args, **kwargs."""
    count = code.co_argcount + code.co_kwonlyargcount
    return list(code.co_varnames[: count + bool(code.co_flags & 4) + bool(code.co_flags & 8)])


def _read_exception_table(table: bytes) -> list[tuple[int, int, int, int, bool]]:
    entries = []
    stream = iter(table)

    def number(first: int) -> int:
        value = first & 63
        while first & 64:
            first = next(stream)
            value = value << 6 | (first & 63)
        return value

    for byte in stream:
        start = number(byte) * 2
        length, target, info = (number(next(stream)) for _ in range(3))
        entries.append((start, start + length * 2, target * 2, info >> 1, bool(info & 1)))
    return entries


# --- assembling


def assemble(
    instrs: Sequence[Instr],
    like: CodeType,
    *,
    varnames: Sequence[str],
    cellvars: Sequence[str],
    freevars: Sequence[str],
    stacksize: int,
    pools: bool = False,
    **replace: Any,
) -> CodeType:
    """Returns a code object of these instructions. Everything not given (file, name, qualname, flags) is
    copied from `like`. `pools`: constants and names keep their indices in `like`."""
    slots = _slots(varnames, cellvars, freevars)
    slot = {name: position for position, name in reversed(list(enumerate(slots)))}
    instrs = _with_own_handlers(_with_halves(instrs, slot))
    consts: list[Any] = list(
        like.co_consts if pools else like.co_consts[:1]
    )  # the docstring stays first
    const_index = {id(value): position for position, value in enumerate(consts)}
    names: list[str] = list(like.co_names if pools else ())
    name_index = {name: position for position, name in enumerate(names)}
    operands: list[int] = []
    for position, instr in enumerate(instrs):
        instr.index = position
        if instr.op in JUMPS:
            operands.append(1 << 8 * instr.flags if instr.flags else 0)
        elif instr.op in CONSTS:
            if id(instr.arg) not in const_index:
                const_index[id(instr.arg)] = len(consts)
                consts.append(instr.arg)
            operands.append(const_index[id(instr.arg)])
        elif instr.op in NAMES:
            index = name_index.setdefault(instr.arg, len(names))
            if index == len(names):
                names.append(instr.arg)
            operands.append(index << FLAG_BITS.get(instr.op, 0) | instr.flags)
        elif instr.op in SLOTS:
            operands.append(slot[instr.arg])
        elif instr.op in PAIRS:
            first, second = (slot[name] for name in instr.arg)
            operands.append(first << 4 | second)
        else:
            operands.append(instr.arg or 0)
    offsets = _place(instrs, operands)
    return like.replace(
        co_code=_emit(instrs, operands),
        co_consts=tuple(consts),
        co_names=tuple(names),
        co_varnames=tuple(varnames),
        co_nlocals=len(varnames),
        co_cellvars=tuple(cellvars),
        co_freevars=tuple(freevars),
        co_stacksize=stacksize,
        co_linetable=_write_positions(instrs, offsets, like.co_firstlineno),
        co_exceptiontable=_write_exception_table(instrs, offsets),
        **replace,
    )


def _with_halves(instrs: Sequence[Instr], slot: dict[str, int]) -> list[Instr]:
    """Writes a pair as two instructions if one of its variables has a slot that does not fit."""
    result: list[Instr] = []
    for instr in instrs:
        result.append(instr)
        if instr.op in PAIRS and any(slot[name] >= 16 for name in instr.arg):
            half = instr.copy()  # the first half stays the target of jumps
            (instr.op, half.op), (instr.arg, half.arg) = PAIRS[instr.op], instr.arg
            result.append(half)
    return result


def _with_own_handlers(instrs: Sequence[Instr]) -> list[Instr]:
    """Puts a NOP with the same handler before an instruction whose exceptions would find that of the one
    before it."""
    result: list[Instr] = []
    for instr in instrs:
        if instr.op in CALLS_PYTHON and result and result[-1].handler is not instr.handler:
            result.append(Instr("NOP", handler=instr.handler, positions=instr.positions))
        result.append(instr)
    return result


def _place(instrs: Sequence[Instr], operands: list[int]) -> list[int]:
    """Returns offsets (in code units) of the instructions and of the end, and fills in jump operands;
    iterates to a fixpoint."""
    rounds = 0
    while True:
        offsets, at = [], 0
        for instr, operand in zip(instrs, operands, strict=True):
            offsets.append(at)
            at += _extensions(operand) + 1 + CACHES.get(instr.op, 0)
        offsets.append(at)
        stable = True
        for position, instr in enumerate(instrs):
            if instr.target is None:
                continue
            target = offsets[instr.target.index]
            distance = target - offsets[position + 1]
            if "BACKWARD" in instr.op:
                distance = -distance
            assert distance >= 0, f"{instr!r} jumps the wrong way"
            if operands[position] != distance:
                stable = stable and _extensions(distance) == _extensions(operands[position])
                operands[position] = distance
        if stable:
            return offsets
        rounds += 1
        if rounds == GUESSES:  # restart with operands of 0: they only grow, so the loop ends
            for position, instr in enumerate(instrs):
                operands[position] = operands[position] if instr.target is None else 0


GUESSES = 4  # rounds that start with the original lengths of the jumps


def _extensions(operand: int) -> int:
    return 0 if operand < 1 << 8 else 1 if operand < 1 << 16 else 2 if operand < 1 << 24 else 3


def _emit(instrs: Sequence[Instr], operands: list[int]) -> bytes:
    out = bytearray()
    for instr, operand in zip(instrs, operands, strict=True):
        for level in range(_extensions(operand), 0, -1):
            out += bytes((OPMAP["EXTENDED_ARG"], operand >> 8 * level & 255))
        out += bytes((OPMAP[instr.op], operand & 255)) + bytes(2 * CACHES.get(instr.op, 0))
    return bytes(out)


def _write_positions(instrs: Sequence[Instr], offsets: list[int], first_line: int) -> bytes:
    """Returns the location table, with the entries that CPython's own compiler would choose."""
    writer = _PositionWriter(first_line)
    start = 0
    for position, instr in enumerate(instrs):
        after = instrs[position + 1].positions if position + 1 < len(instrs) else None
        # since 3.12, a run of the same position has one entry
        if not PY312 or after != instr.positions:
            writer.write(offsets[position + 1] - offsets[start], instr.positions)
            start = position + 1
    return bytes(writer.out)


class _PositionWriter:
    LONGEST = 8  # code units of one entry, at most

    def __init__(self, first_line: int) -> None:
        self.out = bytearray()
        self.line = first_line

    def write(self, units: int, positions: Positions) -> None:
        while units > 0:
            self._entry(min(units, self.LONGEST), positions)
            units -= self.LONGEST

    def _entry(self, units: int, positions: Positions) -> None:
        line, end_line, column, end_column = positions
        if line is None:
            self._start(15, units)
            return
        delta, self.line = line - self.line, line
        if column is None or end_column is None:
            self._start(13, units)
            self._signed(delta)
        elif end_line == line and delta == 0 and column < 80 and 0 <= end_column - column < 16:
            self._start(column >> 3, units)
            self.out.append((column & 7) << 4 | end_column - column)
        elif end_line == line and 0 <= delta < 3 and column < 128 and end_column < 128:
            self._start(10 + delta, units)
            self.out += bytes((column, end_column))
        else:
            self._start(14, units)
            self._signed(delta)
            self._number((end_line if end_line is not None else line) - line)
            self._number(column + 1)
            self._number(end_column + 1)

    def _start(self, kind: int, units: int) -> None:
        self.out.append(0x80 | kind << 3 | units - 1)

    def _number(self, value: int) -> None:
        while value >= 64:
            self.out.append(64 | value & 63)
            value >>= 6
        self.out.append(value)

    def _signed(self, value: int) -> None:
        self._number(-value << 1 | 1 if value < 0 else value << 1)


def _write_exception_table(instrs: Sequence[Instr], offsets: list[int]) -> bytes:
    out = bytearray()

    def number(value: int, first: int = 0) -> None:
        for shift in (24, 18, 12, 6):
            if value >= 1 << shift:
                out.append(value >> shift & 63 | 64 | first)
                first = 0
        out.append(value & 63 | first)

    position = 0
    while position < len(instrs):
        handler = instrs[position].handler
        start = position
        while position < len(instrs) and instrs[position].handler is handler:
            position += 1
        if handler is not None:
            number(offsets[start], 128)
            number(offsets[position] - offsets[start])
            number(offsets[handler.target.index])
            number(handler.depth << 1 | handler.lasti)
    return bytes(out)
