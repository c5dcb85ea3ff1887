"""Making values again in new code.

In: values as they are at the end of a capture.  Out: instructions that push them.  Values with an origin are reloaded from there, tensors of the
graph are taken from its results, new objects are built once and then shared, so that two names for one object stay that.
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

from frameloom.capture.values.base import LazyValue, Null, Value
from frameloom.capture.values.const import BY_VALUE, ConstValue, is_nan
from frameloom.capture.values.function import BuiltinValue, CellValue
from frameloom.capture.values.numbers.symbolic import SymbolicNumber, is_unsettled
from frameloom.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from frameloom.capture.bytecode.emitter import CodeBuilder
    from frameloom.capture.guards.source import Origin


PERMANENT = (
    type | FunctionType | MethodDescriptorType | WrapperDescriptorType | ClassMethodDescriptorType
)


def may_be_constant(text: str) -> bool:
    """Whether a string stays that object as a constant of new code: there, one that looks like a name gives way to the interned one that equals it."""
    is_like_a_name = text.isascii() and (text.replace("_", "") or "_").isalnum()
    return not is_like_a_name or sys.intern((text + ".")[:-1]) is text


class Rebuilder:
    """Pushes values in `code`."""

    def __init__(self, code: CodeBuilder, outputs: list[TensorValue]) -> None:
        self.code = code
        self.by_identity = False  # whether the program asks which of equal constants one is
        self.output_name = ""  # the temporary that holds the graph's results
        self._outputs = {id(value): position for position, value in enumerate(outputs)}
        self._kept: dict[int, str] = {}
        self._origins: dict[int, str] = {}
        self._named: list[Any] = [outputs]  # what the three name by identity has to stay alive

    def load(self, value: Value) -> None:
        """Push the object of `value`; the second time it is the same object."""
        value = settled(value)
        if id(value) in self._kept:
            self.code.load(self._kept[id(value)])
        elif (
            isinstance(value, BuiltinValue)
            and value.origin is not None
            and not lives_on(value.real)
        ):
            self.load_origin(value.origin)
        elif isinstance(value, SymbolicNumber) and not value.settled:
            self._load_number(value)
        elif isinstance(value, BuiltinValue | ConstValue):
            if value.origin is not None and self._is_one_of_equal(value):
                self.load_origin(value.origin)
            elif type(value.real) is str and not may_be_constant(value.real):
                self.code.load_const([value.real])
                self.code.subscript(0)
            else:
                self.code.load_const(value.real)  # the guards know it to be this one, or like it
        elif value.origin is not None:
            self.load_origin(value.origin)
        else:
            value.rebuild(self)
            if id(value) in self._kept:  # an immutable one that contains itself was made on the way
                self.code.emit("POP_TOP")
                self.code.load(self._kept[id(value)])
            elif not isinstance(value, TensorValue | Null) and not (
                isinstance(value, CellValue) and value.slot
            ):
                self.keep(value)

    def _is_one_of_equal(self, value: Value) -> bool:
        """Whether code loads the object that this call was given, not the captured call's, which equals it."""
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

    def keep(self, value: Value) -> None:
        """Remember the object on top of the stack as that of `value`.  Mutable ones call this before they are filled, so that they may
        contain themselves."""
        if id(value) not in self._kept:
            name = self._kept[id(value)] = self.code.temporary()
            self._named.append(value)
            self.code.emit("COPY", 1)
            self.code.store(name)

    def preload(self, values: Iterable[Value]) -> None:
        """Load what has an origin now: effects are about to change what the origins lead to."""
        for value in reachable(values):
            if (
                value.origin is not None
                and (value.origin.base is not None or value.origin.kind == "cell")
                and (
                    not isinstance(value, ConstValue)
                    or is_unsettled(value)
                    or self._is_one_of_equal(value)
                )
            ):
                self.load(value)
                self.keep(value)
                self.code.emit("POP_TOP")

    def load_constant_object(self, obj: Any) -> None:
        self.code.load_const(obj)

    def load_output(self, value: TensorValue) -> None:
        self.code.load(self.output_name)
        self.code.subscript(self._outputs[id(value)])

    def load_origin(self, origin: Origin) -> None:
        """Push what is at `origin`; links that lead to more than one thing are walked once."""
        found = self._origins.get(id(origin))
        if found is not None:
            self.code.load(found)
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
    """Whether it is part of a module for good, so that code may hold it; not so the cache of a function, or the method of an object."""
    if isinstance(builtin, BuiltinFunctionType):
        return builtin.__self__ is None or isinstance(builtin.__self__, ModuleType | type)
    return isinstance(builtin, PERMANENT)


def settled(value: Value) -> Value:
    """What stands behind a lazy value that was looked at (one that was not is as good as its origin), and the object that a
    payload is part of."""
    if isinstance(value, LazyValue) and value.found is not None:
        value = value.found
    return value.holder if value.holder is not None else value


def reachable(roots: Iterable[Value]) -> Iterable[Value]:
    """The values that rebuilding `roots` loads; those with an origin are not looked into."""
    seen: dict[int, Value] = {}  # alive as long as they are named by identity
    pending = list(roots)[::-1]
    while pending:
        value = settled(pending.pop())
        if id(value) in seen:
            continue
        seen[id(value)] = value
        yield value
        if value.origin is None:
            pending.extend(reversed(value.parts()))


def tensors_in(roots: Iterable[Value]) -> list[TensorValue]:
    """The tensors without origin that rebuilding these values needs: the outputs of the graph."""
    return [
        value
        for value in reachable(roots)
        if isinstance(value, TensorValue) and value.origin is None
    ]
