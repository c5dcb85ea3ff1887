"""Opcodes new in CPython 3.13.

They are: two locals at once, truth as an instruction, keyword calls with the names on the stack, parts of
f-strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.bytecode.opcodes import PAIRS, TAKES_BOOL
from frameloom.capture.interpreter.opcodes.calls import call_with, set_function_part
from frameloom.capture.interpreter.opcodes.load_store import load_local, store_local
from frameloom.capture.interpreter.opcodes.operators import CONVERSIONS, text_of
from frameloom.capture.interpreter.opcodes.registry import handles
from frameloom.capture.values.const import ConstValue, boolean

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame


@handles("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST")
def two_locals(frame: Frame, ins: Instr) -> None:
    for half, name in zip(PAIRS[ins.op], ins.arg, strict=True):
        if half == "LOAD_FAST":
            load_local(frame, name)
        else:
            store_local(frame, name)


@handles("TO_BOOL")
def to_bool(frame: Frame, ins: Instr) -> None:
    """Does nothing before an instruction that asks for the truth of any value here: a jump knows what depends
    on the answer. COMPARE_OP with the bit for a bool comes only before a jump."""
    if ins.next is None or ins.next.op not in TAKES_BOOL:
        frame.push(boolean(frame.pop().truth(frame.t)))


@handles("CALL_KW")
def call_kw(frame: Frame, ins: Instr) -> None:
    call_with(frame, ins.arg, frame.pop().constant())


@handles("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(frame: Frame, ins: Instr) -> None:
    function, part = frame.pop_raw(), frame.pop_raw()
    set_function_part(frame, function, ins.arg, part)
    frame.push(function)


@handles("CONVERT_VALUE")
def convert_value(frame: Frame, ins: Instr) -> None:
    frame.push(text_of(frame, ins, CONVERSIONS[ins.arg], frame.pop()))


@handles("FORMAT_SIMPLE")
def format_simple(frame: Frame, ins: Instr) -> None:
    frame.push(text_of(frame, ins, format, frame.pop(), ConstValue("")))


@handles("FORMAT_WITH_SPEC")
def format_with_spec(frame: Frame, ins: Instr) -> None:
    spec, value = frame.pop(), frame.pop()
    frame.push(text_of(frame, ins, format, value, spec))
