"""Unary and binary operators, comparisons, subscripts, f-strings."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.opcodes import BINARY_OPS, COMPARE_OPS, compare_index
from frameloom.capture.interpreter import operators
from frameloom.capture.interpreter.opcodes.registry import handles
from frameloom.capture.symbolic.short_circuits import decided_later
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue, boolean
from frameloom.capture.values.containers.container import SliceValue
from frameloom.capture.values.numbers.size_truth import SizeTruth
from frameloom.capture.values.tensor import TensorValue
from frameloom.capture.values.text import SizeTextValue, TensorTextValue, joined, shows_sizes

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame

UNARY: dict[str, tuple[Callable[[Any], Any], str]] = {
    "UNARY_NEGATIVE": (operator.neg, "__neg__"),
    "UNARY_POSITIVE": (operator.pos, "__pos__"),
    "UNARY_INVERT": (operator.invert, "__invert__"),
}


@handles(*UNARY)
def unary(frame: Frame, ins: Instr) -> None:
    fn, name = UNARY[ins.op]
    frame.push(operators.unary(frame.t, fn, name, frame.pop()))


@handles("UNARY_NOT")
def unary_not(frame: Frame, ins: Instr) -> None:
    value = frame.pop()
    if isinstance(value, SizeTruth) and not value.is_specialized:
        frame.push(value.negated())
    else:
        frame.push(boolean(not value.truth(frame.t)))


@handles("BINARY_OP")
def binary_op(frame: Frame, ins: Instr) -> None:
    right, left = frame.pop_raw(), frame.pop_raw()
    frame.push(operators.binary(frame.t, BINARY_OPS[ins.arg], left, right))


@handles("COMPARE_OP")
def compare_op(frame: Frame, ins: Instr) -> Instr | None:
    right, left = frame.pop_raw(), frame.pop_raw()
    result = operators.binary(frame.t, COMPARE_OPS[compare_index(ins.arg)], left, right)
    if not isinstance(result, SizeTruth) or result.is_specialized:
        frame.push(result)
        return None
    decided = decided_later(frame, ins.next)
    frame.push(boolean(decided) if isinstance(decided, bool) else result)
    return None if isinstance(decided, bool) else decided


@handles("IS_OP")
def is_op(frame: Frame, ins: Instr) -> None:
    right, left = frame.pop(), frame.pop()
    frame.push(boolean(frame.t.identical(left, right) is not bool(ins.arg)))


@handles("CONTAINS_OP")
def contains_op(frame: Frame, ins: Instr) -> None:
    container, item = frame.pop(), frame.pop()
    frame.push(boolean(container.contains(frame.t, item) is not bool(ins.arg)))


@handles("BINARY_SUBSCR")
def binary_subscr(frame: Frame, ins: Instr) -> None:
    key, container = frame.pop(), frame.pop()
    frame.push(container.getitem(frame.t, look_into(frame, key)))


@handles("STORE_SUBSCR")
def store_subscr(frame: Frame, ins: Instr) -> None:
    key, container, value = frame.pop(), frame.pop(), frame.pop_raw()
    container.setitem(frame.t, look_into(frame, key), value)


@handles("DELETE_SUBSCR")
def delete_subscr(frame: Frame, ins: Instr) -> None:
    key, container = frame.pop(), frame.pop()
    container.delitem(frame.t, look_into(frame, key))


@handles("BINARY_SLICE")
def binary_slice(frame: Frame, ins: Instr) -> None:
    start, stop = frame.pop_many(2)
    container = frame.pop()
    frame.push(
        container.getitem(frame.t, look_into(frame, SliceValue(start, stop, ConstValue(None))))
    )


@handles("STORE_SLICE")
def store_slice(frame: Frame, ins: Instr) -> None:
    start, stop = frame.pop_many(2)
    container, value = frame.pop(), frame.pop_raw()
    container.setitem(frame.t, look_into(frame, SliceValue(start, stop, ConstValue(None))), value)


def look_into(frame: Frame, key: Value) -> Value:
    """Resolves the lazy bounds of a slice that is used as a key."""
    if isinstance(key, SliceValue):
        for bound in key.bounds:
            frame.t.look(bound)
    return key


@handles("BUILD_SLICE")
def build_slice(frame: Frame, ins: Instr) -> None:
    bounds = frame.pop_many(ins.arg)
    frame.push(SliceValue(bounds[0], bounds[1], bounds[2] if ins.arg == 3 else ConstValue(None)))


CONVERSIONS = (None, str, repr, ascii)


@handles("FORMAT_VALUE")
def format_value(frame: Frame, ins: Instr) -> None:
    spec = frame.pop() if ins.arg & 4 else ConstValue("")
    value, convert = frame.pop(), CONVERSIONS[ins.arg & 3]
    if convert is not None:
        value = text_of(frame, ins, convert, value)
    frame.push(text_of(frame, ins, format, value, spec))


def text_of(frame: Frame, ins: Instr, fn: Callable[..., str], value: Value, *spec: Value) -> Value:
    """Returns the text that a function makes of a value in an f-string."""
    site = (frame.code, ins.index)
    if isinstance(value, TensorValue) and not frame.t.session.is_avoided(*site):
        return TensorTextValue(site)
    if isinstance(value, TensorTextValue):
        return value
    if shows_sizes(frame.t, value) and all(isinstance(s, ConstValue) for s in spec):
        return SizeTextValue(frame.t, fn, [value, *spec])
    return frame.t.call_builtin(fn, [value, *spec], {})


@handles("BUILD_STRING")
def build_string(frame: Frame, ins: Instr) -> None:
    segments = frame.pop_many(ins.arg)
    for segment in map(frame.t.look, segments):
        if isinstance(segment, TensorTextValue):
            frame.push(segment)
            return
    if any(shows_sizes(frame.t, segment) for segment in segments):
        frame.push(SizeTextValue(frame.t, joined, segments))
        return
    frame.push(ConstValue("".join(frame.t.look(segment).constant() for segment in segments)))


@handles("GET_LEN")
def get_len(frame: Frame, ins: Instr) -> None:
    frame.push(ConstValue(frame.t.look(frame.stack[-1]).length(frame.t)))
