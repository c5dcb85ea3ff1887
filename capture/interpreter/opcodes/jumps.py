"""Jumps, loops, returns, and yielding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.opcodes import END_FOR_LENGTH
from frameloom.capture.interpreter.generator import AsyncStep, SuspendableValue, finish_send
from frameloom.capture.interpreter.opcodes.registry import handles
from frameloom.capture.speculation.assume import assume, side_that_does_not_raise
from frameloom.capture.symbolic.branch_relevance import assumable_answer
from frameloom.capture.symbolic.short_circuits import decided_later
from frameloom.capture.values.arrays.ndarray import ArrayValue
from frameloom.capture.values.base import Raised
from frameloom.capture.values.const import ConstValue, is_none
from frameloom.capture.values.containers.iterator import IteratorValue, UserIterator
from frameloom.capture.values.numbers.number import NumberValue
from frameloom.capture.values.numbers.size_truth import SizeTruth
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame


@handles("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(frame: Frame, ins: Instr) -> Instr | None:
    return ins.target


@handles("POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE")
def jump_if_true(frame: Frame, ins: Instr) -> Instr | None:
    return ins.target if holds(frame, ins, True) else None


def holds(frame: Frame, ins: Instr, jumps_if: bool) -> bool:
    """Returns the truth of the top of the stack. If tensor data decides whether the program raises, the
    capture assumes that it does not."""
    condition: Any = frame.pop()
    if isinstance(condition, ArrayValue):
        condition = condition.condition(frame.t)
    if isinstance(condition, TensorValue):
        known = condition.known_truth(frame.t)
        if known is not None:
            return known
    if isinstance(condition, TensorValue | NumberValue):
        jump = side_that_does_not_raise(frame.instrs, ins)
        if jump is not None:
            expected = jump is jumps_if
            otherwise: Exception = Break("data_dependent_branch", "bool(tensor)")
            if isinstance(condition, NumberValue):
                condition, otherwise = condition.tensor, Avoid(condition.site)
            assume(frame.t, condition, expected, otherwise)
            return expected
    if isinstance(condition, SizeTruth) and not condition.is_specialized:
        decided = decided_later(frame, ins)
        if not isinstance(decided, bool):
            decided = assumable_answer(frame, ins, jumps_if, condition.predicted())
        if decided is not None:
            return decided
    return condition.truth(frame.t)


@handles("POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE")
def jump_if_false(frame: Frame, ins: Instr) -> Instr | None:
    return None if holds(frame, ins, False) else ins.target


@handles("POP_JUMP_IF_NONE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE")
def jump_if_none(frame: Frame, ins: Instr) -> Instr | None:
    return ins.target if is_none(frame.pop()) else None


@handles("POP_JUMP_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE")
def jump_if_not_none(frame: Frame, ins: Instr) -> Instr | None:
    return None if is_none(frame.pop()) else ins.target


@handles("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_or_pop(frame: Frame, ins: Instr) -> Instr | None:
    if frame.t.look(frame.stack[-1]).truth(frame.t) is ("TRUE" in ins.op):
        return ins.target
    frame.pop_raw()
    return None


@handles("GET_ITER", "GET_YIELD_FROM_ITER")
def get_iter(frame: Frame, ins: Instr) -> None:
    frame.push(frame.pop().iterate(frame.t))


@handles("FOR_ITER")
def for_iter(frame: Frame, ins: Instr) -> Instr | None:
    iterator = frame.t.look(frame.stack[-1])
    if not isinstance(iterator, IteratorValue | UserIterator):
        raise Break("opaque_iterable", f"for over {iterator.describe()}")
    item = iterator.step(frame.t)
    if item is not None:
        frame.push(item)
        return None
    frame.pop_raw()
    target = ins.target
    return frame.instrs[target.index + END_FOR_LENGTH] if target.op == "END_FOR" else target


@handles("END_FOR")
def end_for(frame: Frame, ins: Instr) -> None:
    """Reached only if a loop is left in another way: FOR_ITER skips it."""
    for _ in range(2 // END_FOR_LENGTH):
        frame.pop_raw()


@handles("RETURN_VALUE")
def return_value(frame: Frame, ins: Instr) -> None:
    frame.result = frame.pop_raw()


@handles("RETURN_CONST")
def return_const(frame: Frame, ins: Instr) -> None:
    frame.result = frame.t.from_python(ins.arg)


@handles("RETURN_GENERATOR")
def return_generator(frame: Frame, ins: Instr) -> None:
    """Does the work of `RETURN_GENERATOR`: the caller makes the generator object, and the frame resumes with
    the value of the first `send`."""
    frame.push(ConstValue(None))


@handles("YIELD_VALUE")
def yield_value(frame: Frame, ins: Instr) -> None:
    frame.result = frame.pop_raw()
    frame.suspended = True


@handles("SEND")
def send(frame: Frame, ins: Instr) -> Instr | None:
    """Runs a step of `yield from` or `await`: passes the inner iterator's items on. At its end, jumps with
    its result on top."""
    sent = frame.pop()
    inner = frame.t.look(frame.stack[-1])
    if isinstance(inner, SuspendableValue | AsyncStep):
        try:
            frame.push(inner.send(frame.t, sent))
            return None
        except Raised as raised:
            if not raised.is_a(StopIteration):
                raise
            return finish_send(frame, ins, raised.value.getattr(frame.t, "value"))
    if not isinstance(inner, IteratorValue) or not is_none(sent):
        raise Break("opaque_iterable", f"yield from {inner.describe()}")
    item = inner.step(frame.t)
    if item is not None:
        frame.push(item)
        return None
    return finish_send(frame, ins, ConstValue(None))


@handles("END_SEND")
def end_send(frame: Frame, ins: Instr) -> None:
    result = frame.pop_raw()
    frame.pop_raw()
    frame.push(result)
