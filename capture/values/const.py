"""Constants: immutable objects whose content is known in the capture, such as numbers and dtypes.

`Tracer.evaluate` runs operations that involve only constants at capture time.
"""

from __future__ import annotations

import enum
import inspect
import operator
import re
import typing
from contextvars import ContextVar
from types import CodeType, FunctionType, GenericAlias, UnionType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.class_lookup import (
    asks_program,
    class_attribute,
    is_data_descriptor,
    is_programs,
    name_in_texts,
    works_as,
)
from frameloom.capture.values.base import Value
from frameloom.capture.values.containers.iterator import SequenceIterator
from frameloom.errors import Break
from frameloom.ir.symbolic.expr import Size

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer

try:
    import numpy
except ImportError:
    NUMPY_SCALARS: tuple[type, ...] = ()
    NUMPY_FUNCTIONS: tuple[type, ...] = ()
    NUMPY_REDUCTIONS: frozenset[Any] = frozenset()
    NUMPY_DTYPES: dict[str, Any] = {}  # those that tensors have, too
    DTYPE_CLASSES: tuple[type, ...] = ()
    NUMPY_INFOS: tuple[type, ...] = ()
else:
    NUMPY_SCALARS = (numpy.bool_, numpy.integer, numpy.floating)
    NUMPY_FUNCTIONS = (numpy.ufunc, type(numpy.prod))
    NUMPY_DTYPES = {
        name: numpy.dtype(name)
        for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")
    }  # fmt: skip
    DTYPE_CLASSES = (numpy.dtype,)
    NUMPY_INFOS = (numpy.finfo, numpy.iinfo)  # what is known of a dtype's numbers
    # Functions of sequences of numbers that return a number.
    NUMPY_REDUCTIONS = frozenset(
        getattr(numpy, name)
        for name in ("prod", "sum", "mean", "max", "min", "amax", "amin", "argmax", "argmin", "std", "var", "median", "round", "around",
                     "dot", "isclose", "allclose", "array_equal", "ndim", "size", "clip", "all", "any", "ptp", "count_nonzero", "linalg.norm")
        if hasattr(numpy, name)
    )  # fmt: skip

LITERALS = frozenset({type(None), bool, int, float, complex, str, bytes})
# Guarded by value if they have a source: which of several equal objects one is, is not known.
BY_VALUE = (str, bytes, int, float, complex, range, torch.device)
SINGLETONS = (torch.dtype, torch.layout, torch.memory_format, type(Ellipsis), type(NotImplemented))
FROZEN = (
    CodeType,
    torch.device,
    range,
    torch.finfo,
    torch.iinfo,
    inspect.Signature,
    inspect.Parameter,
    enum.Enum,
    re.Pattern,
    re.Match,
    ContextVar,
    *NUMPY_SCALARS,
    *DTYPE_CLASSES,
    *NUMPY_INFOS,
    GenericAlias,
    UnionType,
    typing.TypeVar,
    typing.ForwardRef,
    # List[int], Optional and their like
    typing._Final,  # type: ignore[attr-defined]
)


def is_constant(obj: Any) -> bool:
    return type(obj) in LITERALS or type(obj) in SINGLETONS or issubclass(type(obj), FROZEN)


class ConstValue(Value):
    """A constant; `real` is the object."""

    is_specialized: Any = True  # a dynamic number is not, until its value is needed

    def __init__(self, obj: Any, origin: Origin | None = None) -> None:
        if isinstance(obj, Size):
            raise TypeError(f"{obj} varies: it is no constant")
        self.real = obj
        self.origin = origin

    def type(self) -> type:
        return type(self.real)

    def constant(self) -> Any:
        return self.real

    def describe(self) -> str:
        text = repr(self.real) if type(self.real) in LITERALS else ""
        return text if 0 < len(text) < 40 else f"{type(self.real).__name__} constant"

    def getattr(self, t: Tracer, name: str) -> Value:
        # The class that an alias stands for is tried first; NumPy computes some limits in Python.
        if type(self.real) in (GenericAlias, *NUMPY_INFOS):
            return t.evaluate(getattr, [self, ConstValue(name)], {})
        attribute = class_attribute(type(self.real), name)
        if isinstance(attribute, FunctionType) or type(attribute).__name__ in (
            "method_descriptor",
            "wrapper_descriptor",
        ):
            return t.instance_attribute(self, name)
        if works_as(attribute, property) and is_programs(attribute.fget):
            return t.call(t.pinned(attribute.fget), [self], {})
        own = class_attribute(type(attribute), "__get__")
        if is_programs(own) or asks_program(type(self.real), ("__getattr__", "__getattribute__")):
            raise Break("attribute", f"{self.describe()}.{name}")
        if name == "parameters" and isinstance(self.real, inspect.Signature):
            return t.from_python(dict(self.real.parameters))
        if isinstance(self.real, enum.Enum) and (stored := self._stored(t, name)) is not None:
            return stored
        return t.evaluate(getattr, [self, ConstValue(name)], {})

    def _stored(self, t: Tracer, name: str) -> Value | None:
        """Returns an attribute from the dictionary of an enum member, which can change."""
        cls, table = type(self.real), self.real.__dict__
        attribute = class_attribute(cls, name)
        if attribute is enum.Enum.__dict__.get(name) and name in ("value", "name"):
            name = f"_{name}_"
        elif is_data_descriptor(attribute):
            return None
        origin = self.origin if self.origin is not None else t.roots.object(self.real)
        if name not in table:
            t.guards.add(origin.child("dict"), "no_key", name)
            return None
        return t.look(t.wrap(table[name], origin.child("dict").child("key", name)))

    def truth(self, t: Tracer) -> bool:
        if type(self.real) not in LITERALS and asks_program(self.type(), ("__bool__", "__len__")):
            raise Break("opaque_object", f"bool({self.describe()})")
        return bool(self.real)

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not callable(self.real):
            t.raise_(TypeError, f"'{name_in_texts(type(self.real))}' object is not callable")
        method = class_attribute(type(self.real), "__call__")
        if isinstance(method, FunctionType):  # such as `Box[int](...)`
            return t.call_method(type(self.real), "__call__", [self, *args], kwargs)
        return super().call(t, args, kwargs)

    def length(self, t: Tracer) -> int:
        return int(t.evaluate(len, [self], {}).constant())

    def iterate(self, t: Tracer) -> Value:
        if isinstance(self.real, range):
            return SequenceIterator(self, None)
        items = t.evaluate(tuple, [self], {})
        return SequenceIterator(self, t.items(items))

    def getitem(self, t: Tracer, key: Value) -> Value:
        return t.evaluate(operator.getitem, [self, key], {})

    def contains(self, t: Tracer, item: Value) -> bool:
        return bool(t.evaluate(operator.contains, [self, item], {}).constant())

    def key(self, t: Tracer) -> Any:
        known = self.real  # specializes a dynamic number
        if type(known) not in LITERALS and asks_program(type(known), ("__hash__", "__eq__")):
            raise Break("identity", f"hash({self.describe()})")
        if type(known) in (float, complex) and is_nan(self) and self.origin is not None:
            raise Break("identity", f"hash({self.describe()})")
        try:
            hash(self.real)
        except TypeError:
            raise Break("opaque_object", f"hash({self.describe()})") from None
        return self.real


NONE = ConstValue(None)
TRUE = ConstValue(True)
FALSE = ConstValue(False)


def same_literal(a: Any, b: Any) -> bool:
    """Whether two constants of `LITERALS` differ at most in identity; -0.0 and 0.0 do not count as the
    same."""
    if type(a) is not type(b):
        return False
    if type(a) is complex:
        return same_literal(a.real, b.real) and same_literal(a.imag, b.imag)
    return bool(a == b) and (type(a) is not float or a.hex() == b.hex())


def is_nan(value: Value) -> bool:
    """Whether a constant is NaN: containers compare identity first. Does not specialize a dynamic number."""
    if not isinstance(value, ConstValue) or not value.is_specialized:
        return False
    return type(value.real) in (float, complex) and bool(value.real != value.real)


def is_none(value: Value) -> bool:
    return isinstance(value, ConstValue) and value.type() is type(None)


def boolean(value: object) -> ConstValue:
    return TRUE if value else FALSE
