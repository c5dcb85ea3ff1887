"""Rebuilds values in new code.

In: values as they are at the end of a capture. Out: instructions that push them. Values with a source are
reloaded from there, tensors of the graph are taken from its results, new objects are built once and then
shared, so that two names for one object stay that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

from frameloom.capture.values.base import Null, Value, realized
from frameloom.capture.values.const import BY_VALUE, ConstValue, is_nan
from frameloom.capture.values.function import BuiltinValue, CellValue
from frameloom.capture.values.numbers.symbolic import SymbolicNumber, is_symbolic
from frameloom.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from frameloom.capture.bytecode.emitter import CodeBuilder
    from frameloom.capture.guards.source import Origin


PERMANENT = (
    type | FunctionType | MethodDescriptorType | WrapperDescriptorType | ClassMethodDescriptorType
)


def may_be_constant(text: str) -> bool:
    """Whether a string stays the same object as a constant of new code: Python replaces a constant that looks
    like a name by the equal interned string."""
    is_like_a_name = text.isascii() and (text.replace("_", "") or "_").isalnum()
    return not is_like_a_name or sys.intern((text + ".")[:-1]) is text


class Rebuilder:
    """Writes code that pushes values."""

    def __init__(self, code: CodeBuilder, outputs: list[TensorValue]) -> None:
        self.code = code
        self.by_identity = False  # whether the program compares constants by identity
        self.output_name = ""  # the temporary that holds the graph's results
        self._outputs = {id(value): position for position, value in enumerate(outputs)}
        self._kept: dict[int, str] = {}
        self._origins: dict[int, str] = {}
        self._named: list[Any] = [outputs]  # keeps the objects alive whose ids are keys above

    def load(self, value: Value) -> None:
        """Pushes the object of `value`; a second call pushes the same object."""
        value = realized(value)
        if id(value) in self._kept:
            self.code.load(self._kept[id(value)])
        elif (
            isinstance(value, BuiltinValue)
            and value.origin is not None
            and not lives_on(value.real)
        ):
            self.load_origin(value.origin)
        elif isinstance(value, SymbolicNumber) and not value.is_specialized:
            self._load_number(value)
        elif isinstance(value, BuiltinValue | ConstValue):
            if value.origin is not None and self._is_one_of_equal(value):
                self.load_origin(value.origin)
            elif type(value.real) is str and not may_be_constant(value.real):
                self.code.load_const([value.real])
                self.code.subscript(0)
            else:
                # the guards check that it is this object, or an equal one
                self.code.load_const(value.real)
        elif value.origin is not None:
            self.load_origin(value.origin)
        else:
            value.rebuild(self)
            if id(value) in self._kept:  # an immutable value that contains itself was made inside
                self.code.emit("POP_TOP")
                self.code.load(self._kept[id(value)])
            elif not (value.is_output or isinstance(value, Null)) and not (
                isinstance(value, CellValue) and value.slot
            ):
                self.keep(value)

    def _is_one_of_equal(self, value: Value) -> bool:
        """Whether code loads the object of the current call, and not the equal one of the captured call."""
        if type(value.real) not in BY_VALUE or value.origin is None:
            return False
        return self.by_identity or value.origin.kind == "arg" or is_nan(value)

    def _load_number(self, value: SymbolicNumber) -> None:
        if value.origin is not None:
            self.load_origin(value.origin)
        else:
            value.rebuild(self)
            self.keep(value)

    def load_all(self, values: Iterable[Value]) -> None:
        for value in values:
            self.load(value)

    def load_tuple(self, values: list[Value]) -> None:
        self.load_all(values)
        self.code.emit("BUILD_TUPLE", len(values))

    def call(self, function: Any, /, *operands: Any, **named: Value) -> None:
        """Pushes the result of a call. An operand is a value, a list of values, of which a tuple is passed, or
        a constant."""
        self.code.start_call(function)
        for operand in (*operands, *named.values()):
            if isinstance(operand, Value):
                self.load(operand)
            elif isinstance(operand, list):
                self.load_tuple(operand)
            else:
                self.code.load_const(operand)
        self.code.call(len(operands) + len(named), tuple(named))

    def do(self, function: Any, /, *operands: Any) -> None:
        """Calls a function only for what it does."""
        self.call(function, *operands)
        self.code.emit("POP_TOP")

    def store_attribute(self, name: str, value: Value) -> None:
        """Sets an attribute of the object on top of the stack."""
        self.load(value)
        self.code.emit("COPY", 2)
        self.code.emit("STORE_ATTR", name)

    def keep(self, value: Value) -> None:
        """Remembers the object on top of the stack as that of `value`. Mutable objects call this before they
        are filled, so that they may contain themselves."""
        if id(value) not in self._kept:
            name = self._kept[id(value)] = self.code.temporary()
            self._named.append(value)
            self.code.emit("COPY", 1)
            self.code.store(name)

    def preload(self, values: Iterable[Value]) -> None:
        """Loads the values that have a source, before effects change the objects that the sources lead to."""
        for value in reachable(values):
            if (
                value.origin is not None
                and (value.origin.base is not None or value.origin.kind == "cell")
                and (
                    not isinstance(value, ConstValue)
                    or is_symbolic(value)
                    or self._is_one_of_equal(value)
                )
            ):
                self.load(value)
                self.keep(value)
                self.code.emit("POP_TOP")

    def load_output(self, value: TensorValue) -> None:
        self.code.load(self.output_name)
        self.code.subscript(self._outputs[id(value)])

    def load_origin(self, origin: Origin) -> None:
        """Pushes the object at `origin`; shared links are loaded once."""
        temporary = self._origins.get(id(origin))
        if temporary is not None:
            self.code.load(temporary)
            return
        base = origin.base
        if base is None:
            origin.load(self.code)
            return
        if origin.kind == "key" and base.kind == "globals":
            self.code.emit("LOAD_GLOBAL", origin.key)
            return
        self.load_origin(base)
        if base.base is not None and id(base) not in self._origins:
            name = self._origins[id(base)] = self.code.temporary()
            self._named.append(base)
            self.code.emit("COPY", 1)
            self.code.store(name)
        origin.load(self.code)


def lives_on(builtin: Any) -> bool:
    """Whether it stays in a module for good, so that code may hold it; not, for example, the cache of a
    function or a bound method."""
    if isinstance(builtin, BuiltinFunctionType):
        return builtin.__self__ is None or isinstance(builtin.__self__, ModuleType | type)
    return isinstance(builtin, PERMANENT)


def reachable(roots: Iterable[Value]) -> Iterable[Value]:
    """Yields the values that rebuilding `roots` loads, without the parts of those with a source."""
    seen: dict[int, Value] = {}  # keeps them alive while their ids are used
    pending = list(roots)[::-1]
    while pending:
        value = realized(pending.pop())
        if id(value) in seen:
            continue
        seen[id(value)] = value
        yield value
        if value.origin is None:
            pending.extend(reversed(value.parts()))


def tensors_in(roots: Iterable[Value]) -> list[TensorValue]:
    """Returns the tensors without source that rebuilding these values needs: the outputs of the graph."""
    return [
        value for value in reachable(roots) if isinstance(value, TensorValue) and value.is_output
    ]
