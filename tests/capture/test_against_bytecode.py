"""What we decode and assemble, read by the `bytecode` package, which is written by others."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from types import CodeType
from typing import Any

import bytecode

from frameloom.capture.bytecode import instruction as instr
from tests.capture import round_trip


def sample(every: int) -> list[CodeType]:
    codes = []
    for number, path in enumerate(round_trip.sources(round_trip.default_folders()[:1])):
        if number % every or "site-packages" in path.parts:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = compile(path.read_bytes(), Path(path).name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):  # the standard library has broken files, for its tests
            continue
        codes += round_trip.codes(module)
    return codes


def read(code: CodeType) -> bytecode.Bytecode:
    return bytecode.Bytecode.from_code(code, conserve_exception_block_stackdepth=True)


def described(listing: bytecode.Bytecode) -> tuple[list[Any], set[Any]]:
    """The instructions as (name, operand, line), with labels as positions; and each instruction's handler."""
    positions: dict[Any, int] = {}
    instructions: list[Any] = []
    for item in listing:
        if isinstance(item, bytecode.Label):
            positions[id(item)] = len(instructions)
        elif isinstance(item, bytecode.Instr):
            instructions.append(item)
    handlers, active, at = set(), [], 0
    for item in listing:
        if isinstance(item, bytecode.TryBegin):
            active.append(item)
        elif isinstance(item, bytecode.TryEnd):
            active.remove(item.entry)
        elif isinstance(item, bytecode.Instr):
            handlers |= {(at, positions[id(b.target)], b.push_lasti, b.stack_depth) for b in active}
            at += 1
    lines = []
    for item in instructions:
        label = isinstance(item.arg, bytecode.Label)
        operand = positions[id(item.arg)] if label else item.arg
        lines.append((item.name, operand if label else repr(operand), item.lineno))
    return lines, handlers


def padded(items: list[Any], is_instruction: Any, nop: Any) -> list[Any]:
    """The list with NOPs behind every seventh instruction, 90 of them behind every fiftieth."""
    new, at = [], 0
    for item in items:
        new.append(item)
        if is_instruction(item):
            if at % 7 == 3:
                new += [nop(item) for _ in range(90 if at % 50 == 3 else 1)]
            at += 1
    return new


def assembled_with_padding(code: CodeType) -> CodeType:
    def nop(before: instr.Instr) -> instr.Instr:
        return instr.Instr("NOP", positions=before.positions, handler=before.handler)

    whole = padded(round_trip.copied(instr, code), lambda item: True, nop)
    return round_trip.assembled(instr, whole, code)


def test_decoded_instructions():
    """Names, lines, jumps and handlers of each instruction."""
    codes = sample(every=40)
    assert len(codes) > 500
    for code in codes:
        ours, (theirs, handlers) = instr.decode(code), described(read(code))
        assert [i.op for i in ours] == [name for name, _, _ in theirs], code
        for own, (_, operand, line) in zip(ours, theirs, strict=True):
            assert own.positions[0] == line, (code, own)
            if own.target is not None:
                assert own.target.index == operand, (code, own)
        own_handlers = {
            (i.index, i.handler.target.index, i.handler.lasti, i.handler.depth)
            for i in ours
            if i.handler is not None
        }
        assert own_handlers == handlers, code


def test_assembled_code_with_instructions_put_in():
    """Jumps become longer, lines and handlers move: the same listing as when `bytecode` puts them in."""
    codes = sample(every=40)
    for code in codes:
        listing = read(code)

        def nop(before: bytecode.Instr) -> bytecode.Instr:
            made = copy.copy(before)
            made.set("NOP")
            return made

        listing[:] = padded(list(listing), lambda item: isinstance(item, bytecode.Instr), nop)
        want_lines, want_handlers = described(listing)
        lines, handlers = described(read(assembled_with_padding(code)))
        assert lines == want_lines, code
        assert handlers == want_handlers, code
