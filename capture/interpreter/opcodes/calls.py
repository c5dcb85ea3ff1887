"""Calls, and the creation of functions and classes."""

from __future__ import annotations

import builtins
import operator
from typing import TYPE_CHECKING

from frameloom.capture.bytecode.opcodes import PY313
from frameloom.capture.guards.class_lookup import MISSING, class_attribute
from frameloom.capture.interpreter import calls, operators
from frameloom.capture.interpreter.generator import YieldedValue
from frameloom.capture.interpreter.mappings import mapping_entries
from frameloom.capture.interpreter.opcodes.registry import handles
from frameloom.capture.values.base import NULL, Value
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import BuiltinValue, CellValue, FunctionValue, MadeFunction
from frameloom.capture.values.static import ClassValue, SuperValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame


@handles("KW_NAMES", atomic=True)
def kw_names(frame: Frame, ins: Instr) -> None:
    frame.kwnames = ins.arg


@handles("CALL")
def call(frame: Frame, ins: Instr) -> None:
    names, frame.kwnames = frame.kwnames, ()
    call_with(frame, ins.arg, names)


def call_with(frame: Frame, count: int, names: tuple[str, ...]) -> None:
    """Calls the callable below `count` operands; the last operands are keyword arguments with these
    `names`."""
    operands = frame.pop_many(count)
    callee, first = pop_callable(frame)
    if (
        first is not NULL
    ):  # the method form: a function and its first argument, or a comprehension's iterator
        operands = [first, *operands]
    split = len(operands) - len(names)
    args, kwargs = operands[:split], dict(zip(names, operands[split:], strict=True))
    callee = frame.t.look(callee)
    if callee.real is super and not args:
        frame.push(bare_super(frame))
        return
    frame.push(calls.call(frame.t, callee, args, kwargs, resumable=True))


def pop_callable(frame: Frame) -> tuple[Value, Value]:
    """Returns the callable, and its first argument or NULL."""
    upper, lower = frame.pop_raw(), frame.pop_raw()
    if PY313 or lower is not NULL:
        return lower, upper
    return upper, NULL


def bare_super(frame: Frame) -> Value:
    """Returns `super()` without arguments: the class is in `__class__`, the instance in the first
    argument."""
    cell, code = frame.slots.get("__class__"), frame.code
    first = frame.slots.get(code.co_varnames[0]) if code.co_argcount else None
    if isinstance(first, CellValue) and code.co_varnames[0] in code.co_cellvars:
        first = first.content
    if not isinstance(cell, CellValue) or cell.content is None or first is None:
        raise Break("unknown_call", "super()")
    cls = frame.t.look(cell.content)
    assert isinstance(cls, ClassValue)
    return SuperValue(cls.real, frame.t.look(first))


@handles("CALL_FUNCTION_EX")
def call_function_ex(frame: Frame, ins: Instr) -> None:
    kwargs: dict[str, Value] = {}
    if ins.arg & 1:
        for key, value in mapping_entries(frame.t, frame.pop()):
            name = key.constant()
            if not isinstance(name, str):
                frame.t.raise_unworded(TypeError, "keywords that are no strings")
            kwargs[name] = value
    given = frame.t.look(frame.pop())
    if all(class_attribute(given.type(), s) is MISSING for s in ("__iter__", "__getitem__")):
        frame.t.raise_unworded(TypeError, f"*{given.describe()}")
    args = frame.t.sized_items(given)
    callee = frame.t.look(pop_callable(frame)[0])
    frame.push(calls.call(frame.t, callee, args, kwargs, resumable=True))


DEFAULTS, KEYWORD_DEFAULTS, ANNOTATIONS, CLOSURE = 1, 2, 4, 8


@handles("MAKE_FUNCTION")
def make_function(frame: Frame, ins: Instr) -> None:
    made = MadeFunction(frame.pop().constant(), frame.globals, DictValue())
    function = FunctionValue(None, None, made)
    for part in (CLOSURE, ANNOTATIONS, KEYWORD_DEFAULTS, DEFAULTS):
        if (ins.arg or 0) & part:
            set_function_part(frame, function, part, frame.pop_raw())
    frame.push(function)


def set_function_part(frame: Frame, function: Value, part: int, value: Value) -> None:
    t, made = frame.t, getattr(function, "made", None)
    value = t.look(value)
    if part == CLOSURE:
        for cell in map(t.look, t.items(value)):
            assert isinstance(cell, CellValue)
            made.closure.append(cell)
    elif part == ANNOTATIONS:
        assert isinstance(value, TupleValue)
        table = t.from_python({})
        for name, annotation in zip(value.items[::2], value.items[1::2], strict=True):
            table.setitem(t, t.look(name), annotation)
        made.special["__annotations__"] = table
    elif part == KEYWORD_DEFAULTS:
        made.kwdefaults = {key.constant(): item for key, item in mapping_entries(frame.t, value)}
    else:
        made.defaults = list(t.items(value))


@handles("LOAD_BUILD_CLASS")
def load_build_class(frame: Frame, ins: Instr) -> None:
    frame.push(BuiltinValue(builtins.__build_class__))  # its call breaks


@handles("CALL_INTRINSIC_1")
def call_intrinsic_1(frame: Frame, ins: Instr) -> None:
    if ins.arg == 5:
        frame.push(operators.unary(frame.t, operator.pos, "__pos__", frame.pop()))
    elif ins.arg == 6:
        frame.push(TupleValue(list(frame.t.items(frame.pop()))))
    elif ins.arg == 4:
        frame.push(YieldedValue(frame.pop_raw()))
    elif ins.arg == 3:
        pass  # SuspendableValue turns a StopIteration that leaves a generator into a RuntimeError
    else:
        raise Break("opcode", f"CALL_INTRINSIC_1 {ins.arg}")
