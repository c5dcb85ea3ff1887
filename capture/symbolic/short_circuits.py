"""`n > 1 and mask is None and causal`: finds conditions whose later operands decide, whatever the comparison
of a size before them gives.

In: the frame, and the jump that asks for the truth of a comparison. Out: the truth that may be assumed
    without a guard: False where a later operand of the same `and` is False, True where one of an `or` is
    True. Or the end of the whole condition, if its value is that of the comparison: all other operands of an
    `and` are True. The operands in between are loads of variables and constants, `is`, `not` and comparisons
    of sizes, which have no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from frameloom.capture.bytecode.opcodes import COMPARE_OPS, PAIRS, compare_index
from frameloom.capture.values.const import ConstValue, boolean
from frameloom.capture.values.numbers.size_truth import compared_sizes

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame
    from frameloom.capture.values.base import Value

PREFIX = "POP_JUMP_"
KEEPS = {"JUMP_IF_FALSE_OR_POP": False, "JUMP_IF_TRUE_OR_POP": True}  # CPython 3.11
LONGEST = 24  # instructions


def decided_later(frame: Frame, asked: Instr | None) -> bool | Instr | None:
    """Returns the truth that may be assumed for the comparison at instruction `asked`; or the instruction
    that continues with the comparison's own value; None where neither is possible."""
    first = _jump(asked)
    if first is None:
        return None
    answer, target, at, keeps = first.when, first.target, first.next, first.keeps
    stack: list[Value] = []
    for _ in range(LONGEST):
        if at is None:
            return None
        if at is target:  # the last operand is the value
            truth = _truth(stack[0]) if len(stack) == 1 else None
            return answer if truth is answer else None if truth is None else target
        jump = _jump(at) if stack else None
        if jump is None:
            if not _step(frame, at, stack):
                return None
            at = at.next
            continue
        if jump.keeps is not keeps or (keeps and jump[:2] != first[:2]):
            return None
        truth = jump.decided(stack.pop())
        if keeps and truth is None:  # it may be the result
            return None
        successor = None if truth is None else jump.target if truth is jump.when else jump.next
        if successor is target:
            return answer
        if successor is not jump.next and (truth is not None or jump.target is not target):
            return None
        at = jump.next
    return None


class Jump(NamedTuple):
    """Where an instruction jumps, depending on the truth of the value on the stack."""

    when: bool
    target: Instr | None
    next: Instr | None
    keeps: bool = False  # whether the value stays on the stack if it jumps
    of_none: bool = False  # whether it tests for None

    def decided(self, value: Value) -> bool | None:
        return _is_none(value) if self.of_none else _truth(value)


def _jump(at: Instr | None) -> Jump | None:
    if at is None:
        return None
    if at.op == "TO_BOOL":  # CPython 3.13
        return _jump(at.next)
    if at.op in KEEPS:
        return Jump(KEEPS[at.op], at.target, at.next, keeps=True)
    if at.op == "COPY" and at.arg == 1:  # CPython 3.12
        jump = _jump(at.next)
        popped = jump.next if jump is not None else None
        if jump is None or popped is None or popped.op != "POP_TOP":
            return None
        return jump._replace(next=popped.next, keeps=True)
    if not at.op.startswith(PREFIX):
        return None
    if at.op.endswith("NONE"):
        return Jump(not at.op.endswith("NOT_NONE"), at.target, at.next, of_none=True)
    return Jump(at.op.endswith("TRUE"), at.target, at.next)


def _step(frame: Frame, at: Instr, stack: list[Value]) -> bool:
    """Executes the instruction on the stack; returns False if it may have an effect."""
    if at.op == "LOAD_CONST":
        stack.append(frame.t.from_python(at.arg))
    elif at.op in ("LOAD_FAST", "LOAD_FAST_LOAD_FAST"):
        names = at.arg if at.op in PAIRS else (at.arg,)
        if not frame.slots.keys() >= {*names}:
            return False
        stack += [frame.t.look(frame.slots[name]) for name in names]
    elif at.op == "TO_BOOL" and stack:
        return _truth(stack[-1]) is not None
    elif at.op == "IS_OP" and len(stack) > 1:
        others = [_is_none(stack.pop()) for _ in range(2)]
        if None in others or True not in others:
            return False
        stack.append(boolean(all(others) is not bool(at.arg)))
    elif at.op == "COMPARE_OP" and len(stack) > 1:
        right, left = stack.pop(), stack.pop()
        comparison = compared_sizes(frame.t, COMPARE_OPS[compare_index(at.arg)], [left, right])
        if comparison is None:
            return False
        stack.append(comparison)
    elif at.op == "UNARY_NOT" and stack:
        truth = _truth(stack.pop())
        if truth is None:
            return False
        stack.append(boolean(not truth))
    else:
        return False
    return True


def _truth(value: Value) -> bool | None:
    """Returns the value if it is True or False itself."""
    return value.real if type(value) is ConstValue and value.type() is bool else None


def _is_none(value: Value) -> bool | None:
    if type(value) is ConstValue:
        return value.real is None
    return False if value.type() is not type(None) else None
