"""The builtin `sum`. Since CPython 3.12 it keeps what the addition of floats rounds away, and adds that at the
end."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.opcodes import PY312
from frameloom.capture.interpreter import operators
from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

Operator = Callable[[Any, Any], Any]


@knows(sum, least=1, most=2, keywords="start")
def _sum(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    total = t.look(kwargs.get("start", args[1] if len(args) > 1 else ConstValue(0)))
    if total.type() in (str, bytes):
        kind, empty = ("strings", "''") if total.type() is str else ("bytes", "b''")
        t.raise_(TypeError, f"sum() can't sum {kind} [use {empty}.join(seq) instead]")
    of_ints = total.type() is int and _is_long(total)
    of_floats = PY312 and total.type() is float
    lost: Value = ConstValue(0.0)
    for item in map(t.look, t.each(args[0])):
        if of_floats and item.type() is float:
            total, lost = _add(t, total, lost, item)
            continue
        goes_on = _is_long(item) and (of_floats or item.type() in (int, bool))
        if of_floats and not goes_on:
            total, of_floats = _with_lost(t, total, lost), False
        total = t.look(operators.binary(t, operator.add, total, item))
        if of_ints and not (goes_on and _is_long(total)):
            of_ints, of_floats = False, PY312 and total.type() is float
    return _with_lost(t, total, lost) if of_floats else total


def _is_long(value: Value) -> bool:
    """Whether CPython adds it as a number of C: an int of 64 bits, or a bool. Dynamic ints are smaller."""
    if not issubclass(value.type(), int):
        return False
    return type(value) is not ConstValue or -(1 << 63) <= value.real < 1 << 63


def _add(t: Tracer, total: Value, lost: Value, item: Value) -> tuple[Value, Value]:
    """Returns the rounded sum, and what was lost with what it has lost. Without a branch: CPython asks which
    operand is larger, and gets the same."""

    def binary(fn: Operator, left: Value, right: Value) -> Value:
        return operators.binary(t, fn, left, right)

    added = binary(operator.add, total, item)
    part = binary(operator.sub, added, total)
    of_total = binary(operator.sub, total, binary(operator.sub, added, part))
    of_item = binary(operator.sub, item, part)
    return added, binary(operator.add, lost, binary(operator.add, of_total, of_item))


def _with_lost(t: Tracer, total: Value, lost: Value) -> Value:
    """Adds what was lost, if it is neither zero nor, after an overflow, infinite or no number."""
    difference = operators.binary(t, operator.sub, lost, lost)
    counts = _holds(t, operator.ne, lost) and _holds(t, operator.eq, difference)
    return operators.binary(t, operator.add, total, lost) if counts else total


def _holds(t: Tracer, comparison: Operator, number: Value) -> bool:
    return t.look(operators.binary(t, comparison, number, ConstValue(0.0))).truth(t)
