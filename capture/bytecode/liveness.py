"""Finds the local variables that are still read after an instruction, and those surely bound before it.

In: a code object. Out: for each instruction, the names live before it, and those surely bound before it.
Edges to exception handlers count, and so do the variables that a `super()` without arguments reads
implicitly.
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
from frameloom.capture.bytecode.opcodes import NO_FALLTHROUGH, PAIRS, SLOTS


@per_code
def live_before(code: CodeType) -> list[frozenset[str]]:
    """Returns for each instruction the names whose value may be read at it or after it."""
    instrs = decode(code)
    first = (
        frozenset(code.co_varnames[:1])
        if code.co_argcount and "__class__" in code.co_freevars
        else frozenset()
    )
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
            elif any(
                i.op == "LOAD_GLOBAL" and i.arg == "super" for i in _last_three(instrs, instr)
            ):
                names |= first  # super() may be resumed between its look-up and its call
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


def _last_three(instrs: list[Instr], instr: Instr) -> list[Instr]:
    return instrs[max(0, instr.index - 2) : instr.index + 1]


def _live_after(instr: Instr, instrs: list[Instr], live: list[frozenset[str]]) -> frozenset[str]:
    names: frozenset[str] = frozenset()
    if instr.op not in NO_FALLTHROUGH and instr.index + 1 < len(instrs):
        names = live[instr.index + 1]
    if instr.target is not None:
        names |= live[instr.target.index]
    return names
