"""`if n == 1 and not compiling(): ...`: finds comparisons of sizes for which both sides of the branch reach
the same state, so no guard is needed.

In: the frame, and the jump that a comparison decides. Out: the answer that may be assumed. The interpreter
    follows the side that evaluates more conditions: if it reaches the other side, and has changed nothing on
    the way, the comparison does not matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.errors import Break, let_mistakes_through

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame
    from frameloom.capture.interpreter.tracer import Tracer

LONGEST = 48  # instructions
DEEPEST = 3  # conditions that are evaluated to answer others
QUESTIONS = frozenset({
    "LOAD_FAST", "LOAD_FAST_LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD", "LOAD_DEREF", "PUSH_NULL", "PRECALL", "KW_NAMES", "CALL", "CALL_KW", "TO_BOOL", "IS_OP", "CONTAINS_OP",
    "COMPARE_OP", "UNARY_NOT", "BINARY_SUBSCR", "BINARY_OP", "POP_TOP", "COPY", "SWAP", "JUMP_FORWARD", "CACHE", "NOP", "RESUME",
})  # fmt: skip


def assumable_answer(frame: Frame, jump: Instr, jumps_if: bool, predicted: bool) -> bool | None:
    """Returns the answer that may be assumed for the condition of `jump`, which is `predicted` in the
    captured call; None where it matters. The condition is already off the stack."""
    if frame.t.trying >= DEEPEST:
        raise Break(
            "too_large",
            "a size is asked for in a question that only decides whether another one matters",
        )
    sides = {jumps_if: jump.target, not jumps_if: jump.next}
    for answer in (predicted, not predicted):
        if _may_come_to(sides[not answer], sides[answer]) and _comes_to(
            frame, sides[not answer], sides[answer]
        ):
            return answer
    return None


def _may_come_to(start: Instr | None, goal: Instr | None) -> bool:
    """Whether a path through conditions alone leads from `start` to `goal`."""
    waiting, passed = [start], set()
    while waiting:
        at = waiting.pop()
        if at is goal:
            return at is not None
        if at is None or at.index in passed or len(passed) > LONGEST:
            continue
        passed.add(at.index)
        if _is_jump(at):
            waiting += [at.next, at.target]
        elif at.op in QUESTIONS:
            waiting.append(at.target if at.op == "JUMP_FORWARD" else at.next)
    return False


def _is_jump(at: Instr) -> bool:
    return at.op.startswith("POP_JUMP_") and "BACKWARD" not in at.op


def _comes_to(frame: Frame, start: Instr | None, goal: Instr | None) -> bool:
    """Whether the frame, continued at `start`, reaches `goal` in its current state."""
    t = frame.t
    mark, assumed, known = t.mark(), t.recorder.shape_env.mark(), len(t.specialized_numbers)
    saved = frame.at, frame.before, frame.mark, frame.kwnames
    stack = list(frame.stack)
    t.trying += 1
    at, arrives = start, False
    try:
        for _ in range(LONGEST):
            if at is goal:
                arrives = _is_same(stack, frame.stack)
                break
            if at is None or not (_is_jump(at) or at.op in QUESTIONS):
                break
            frame.at = at
            at = at.run(frame, at) or at.next
    except Exception as error:
        # The conditions cannot be evaluated, or they end the program.
        let_mistakes_through(error)
    finally:
        t.trying -= 1
        frame.at, frame.before, frame.mark, frame.kwnames = saved
        frame.stack[:] = stack
        frame.call_base = None
    changed = t.mark() != mark
    if changed or not arrives:
        _take_back(t, mark, assumed, known)
    return arrives and not changed


def _take_back(t: Tracer, mark: int, assumed: int, known: int) -> None:
    t.take_back(mark)
    while len(t.specialized_numbers) > known:
        t.specialized_numbers.pop().unspecialize()
    t.recorder.shape_env.take_back(assumed)


def _is_same(a: list[object], b: list[object]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
