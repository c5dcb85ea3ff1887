"""Finds the local variables that are still read after an instruction, and those surely bound before it.

In: a code object. Out: for each instruction, the names live before it, and those surely bound before it.
Edges to exception handlers count, and so do the variables that a `super()` without arguments reads
implicitly, under any name.
"""

from __future__ import annotations

from types import CodeType

from frameloom.capture.bytecode.instruction import (
    Instr,
    argument_names,
    decode,
    per_code,
    slot_names,
)
from frameloom.capture.bytecode.opcodes import NO_FALLTHROUGH, PAIRS, PY313, SLOTS


@per_code
def implicit_super(code: CodeType) -> dict[int, int]:
    """Returns the calls of a variable without arguments, which may be `super()` under any name, with the
    instruction at which each begins. Only code that mentions `super` or `__class__` has such calls."""
    instrs, calls = decode(code), dict[int, int]()
    if "__class__" not in code.co_freevars or not code.co_argcount:
        return calls
    for call in instrs:
        if call.op == "CALL" and call.arg == 0:
            start = call.index - (instrs[call.index - 1].op == "PRECALL")
            loads = instrs[max(start - 2, 0) : start][::-1]
            is_global = loads[0].op == "LOAD_GLOBAL" and loads[0].flags & 1
            if is_global or loads[0 if PY313 else 1].op == "PUSH_NULL":
                calls[call.index] = start
    return calls


@per_code
def live_before(code: CodeType) -> list[frozenset[str]]:
    """Returns for each instruction the names whose value may be read at it or after it."""
    instrs = decode(code)
    first, supers = frozenset(code.co_varnames[:1]), implicit_super(code)
    live: list[frozenset[str]] = [frozenset()] * len(instrs)
    stable = False
    while not stable:
        stable = True
        for instr in reversed(instrs):
            names = _live_after(instr, instrs, live)
            if instr.op == "STORE_FAST":
                names -= {instr.arg}
            elif instr.op in PAIRS:
                stored = PAIRS[instr.op].count("STORE_FAST")
                names = (names - {*instr.arg[:stored]}) | {*instr.arg[stored:]}
            elif instr.op in SLOTS and instr.op != "MAKE_CELL":
                names |= {instr.arg}
            elif instr.index in supers:
                names |= first
            if instr.handler is not None:
                names |= live[instr.handler.target.index]
            if names != live[instr.index]:
                live[instr.index] = names
                stable = False
    return live


@per_code
def bound_before(code: CodeType) -> list[frozenset[str]]:
    """Returns for each instruction the names that have a value before it on every path; all names for code
    that is never reached."""
    instrs = decode(code)
    names = slot_names(code)
    bound: list[frozenset[str]] = [frozenset(names)] * len(instrs)
    if instrs:
        bound[0] = frozenset(argument_names(code))
    stable = False
    while not stable:
        stable = True
        for instr in instrs:
            before = bound[instr.index]
            reached = [(instr.handler.target.index, before)] if instr.handler is not None else []
            after = _bound_after(instr, before)
            if instr.op not in NO_FALLTHROUGH and instr.index + 1 < len(instrs):
                reached.append((instr.index + 1, after))
            if instr.target is not None:
                reached.append((instr.target.index, after))
            for index, incoming in reached:
                if not bound[index] <= incoming:
                    bound[index] &= incoming
                    stable = False
    return bound


def _bound_after(instr: Instr, bound: frozenset[str]) -> frozenset[str]:
    if instr.op in ("STORE_FAST", "STORE_DEREF"):
        return bound | {instr.arg}
    if instr.op in PAIRS:
        return bound | {*instr.arg[: PAIRS[instr.op].count("STORE_FAST")]}
    if instr.op in ("DELETE_FAST", "DELETE_DEREF", "LOAD_FAST_AND_CLEAR"):
        return bound - {instr.arg}
    return bound


def _live_after(instr: Instr, instrs: list[Instr], live: list[frozenset[str]]) -> frozenset[str]:
    names: frozenset[str] = frozenset()
    if instr.op not in NO_FALLTHROUGH and instr.index + 1 < len(instrs):
        names = live[instr.index + 1]
    if instr.target is not None:
        names |= live[instr.target.index]
    return names
