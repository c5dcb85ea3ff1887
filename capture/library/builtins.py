"""Builtin functions and classes with rules of their own.

The rules here accept values that are not
constants (containers, tensors, user objects). The rest of the library is in `library/`; pure functions of
constants need no entry (`policy.is_pure`).
"""

from __future__ import annotations

import abc
import builtins
import collections
import dataclasses
import logging
import math
import types
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.class_lookup import MISSING, asks_program, class_attribute
from frameloom.capture.interpreter import operators
from frameloom.capture.interpreter.call_rules import (
    FUNCTIONS,
    Args,
    Known,
    Kwargs,
    ValueRule,
    arity,
    breaks,
    knows,
    knows_of_values,
)
from frameloom.capture.interpreter.classes import bare_instance, construct
from frameloom.capture.interpreter.identity import note_bases
from frameloom.capture.interpreter.mappings import fill_dict
from frameloom.capture.values.arrays.ndarray import ArrayValue
from frameloom.capture.values.base import NotConstant, Value, ignoring
from frameloom.capture.values.const import TRUE, ConstValue, boolean
from frameloom.capture.values.containers.container import ListValue, TupleValue, plain
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.containers.sets import SetValue, set_of
from frameloom.capture.values.function import BoundMethodValue
from frameloom.capture.values.object import ObjectValue, boxed
from frameloom.capture.values.static import ClassValue, SuperValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break
from frameloom.ir.symbolic.expr import Size

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def instance(t: Tracer, args: Args, kind: Any) -> Any:
    """Returns the instance, or the built-in container inside an instance of a subclass."""
    value = t.look(args[0])
    if isinstance(value, ObjectValue) and value.payload is not None:
        value = value.payload
    if not isinstance(value, kind):
        raise Break("unknown_call", f"method of {value.describe()}")
    return value


def method(kind: type[Value], *functions: Any) -> Callable[[ValueRule], ValueRule]:
    """Registers the rule for methods of a container. The rule gets its value, the tracer, and the positional
    arguments, as many as its signature takes."""

    def register(rule: ValueRule) -> ValueRule:
        knows(*functions, **arity(rule))(
            lambda t, args, kwargs: rule(instance(t, args, kind), t, *args[1:])
        )
        return rule

    return register


breaks("print", print)
breaks("warning", warnings.warn, warnings.warn_explicit)
breaks("logging", logging.Logger._log)
breaks(
    "class_statement",
    builtins.__build_class__,
    types.new_class,
    dataclasses.make_dataclass,
    dataclasses.dataclass.__globals__["_process_class"],
)
# Their results share memory, but their schemas do not show it.
breaks(
    "unsupported_op",
    *(
        getattr(of, name)
        for of in (torch, torch.Tensor)
        for name in ("unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes")
    ),
)
breaks(
    "unknown_call",
    input,
    open,
    eval,
    exec,
    compile,
    __import__,
    locals,
    globals,
    memoryview,
    bytearray,
)


# --- tests and attributes


@knows(len, least=1, most=1)
def _len(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    tensor = value.tensor(t) if isinstance(value, ArrayValue) else value
    if (
        isinstance(tensor, TensorValue)
        and tensor.fake.ndim
        and isinstance(tensor.fake.shape[0], Size)
    ):
        return t.from_python(tensor.fake.shape[0])
    return ConstValue(value.length(t))


@knows(isinstance, least=2, most=2)
def _isinstance(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    return t.is_instance(args[0], args[1])


@knows(issubclass, least=2, most=2)
def _issubclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        cls, wanted = (plain(t.look(arg)) for arg in args)
    except NotConstant:
        raise Break("unknown_call", "issubclass(...)") from None
    for one in wanted if isinstance(wanted, tuple) else (wanted,):
        check = class_attribute(type(one), "__subclasscheck__")
        if isinstance(check, FunctionType) and check is not abc.ABCMeta.__subclasscheck__:
            raise Break("unknown_call", f"issubclass(..., {one.__name__})")
    answer = t.evaluate(issubclass, args, kwargs)
    for one in wanted if isinstance(wanted, tuple) else (wanted,):
        note_bases(t, cls, one)
    return answer


@knows(callable, least=1, most=1)
def _callable(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    return is_callable(t.look(args[0]))


def is_callable(value: Value) -> bool:
    return class_attribute(value.type(), "__call__") is not MISSING


@knows(type, least=1, most=1)
def _type(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise Break("class_statement", "type(name, bases, dict)")
    value = t.look(args[0])
    if isinstance(value, ObjectValue) and value.origin is not None:
        return ClassValue(value.cls, value.origin.child("type"))
    return t.pinned(value.type())


def _name(t: Tracer, value: Value, asked: Value | None = None) -> str:
    """Returns the name of an attribute from an argument; `asked`: the object whose attribute is read."""
    value = t.look(value)
    name = value.constant()
    if type(name) is str:
        return name
    if not isinstance(name, str):
        t.raise_unworded(TypeError, f"an attribute named {value.describe()}")
    # Probably an enum member: its class may define equality, and code that gets it may see which object it
    # is.
    hooks = ("__getattr__", "__getattribute__")
    if (
        asked is None
        or asks_program(type(name), ("__hash__", "__eq__"))
        or asks_program(asked.type(), hooks)
    ):
        raise Break("attribute", f"an attribute named {value.describe()}")
    return str.__str__(name)


@knows(hasattr, least=2, most=2)
def _hasattr(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    owner = t.look(args[0])
    with ignoring(AttributeError):
        owner.getattr(t, _name(t, args[1], owner))
        return True
    return False


@knows(getattr, least=2, most=3)
def _getattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    owner = t.look(args[0])
    with ignoring(*(AttributeError,) if len(args) > 2 else ()):
        return owner.getattr(t, _name(t, args[1], owner))
    return t.look(args[2])


@knows(setattr, least=3, most=3)
def _setattr(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    t.look(args[0]).setattr(t, _name(t, args[1]), args[2])


@knows(object.__getattribute__, least=2, most=2)
def _object_getattribute(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    owner, name = t.look(args[0]), _name(t, args[1])
    if not isinstance(owner, ObjectValue):
        return owner.getattr(t, name)
    attribute = owner.find(t, name)
    return attribute or t.raise_no_attribute(f"'{owner.describe()}' object", name)


@knows(object.__setattr__, torch.nn.Module.__setattr__, least=3, most=3)
def _object_setattr(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    owner, name = t.look(args[0]), _name(t, args[1])
    if not isinstance(owner, ObjectValue):
        raise Break("attribute_write", f"{owner.describe()}.{name} = ...")
    if isinstance(owner, ObjectValue) and issubclass(owner.cls, torch.nn.Module):
        type(owner).setattr(owner, t, name, args[2])
    else:
        owner.setattr_generic(t, name, args[2])


@knows(delattr, least=2, most=2)
def _delattr(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    t.look(args[0]).delattr(t, _name(t, args[1]))


@knows(object.__delattr__, least=2, most=2)
def _object_delattr(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    owner, name = t.look(args[0]), _name(t, args[1])
    if isinstance(owner, ObjectValue) and not issubclass(owner.cls, torch.nn.Module):
        owner.delattr_generic(t, name)
    else:
        owner.delattr(t, name)


@knows_of_values(object.__init__)
def _object_init(t: Tracer, owner: Value) -> None:
    pass


@knows_of_values(object.__init_subclass__)
def _init_subclass(t: Tracer, cls: Value | None = None) -> None:
    pass


@knows(
    object.__new__,
    dict.__new__,
    list.__new__,
    tuple.__new__,
    int.__new__,
    float.__new__,
    str.__new__,
    collections.OrderedDict.__new__,
    least=1,
    keywords="*",
)
def _new(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    owner = t.look(args[0])
    if not isinstance(owner, ClassValue) or not owner.real.__flags__ & 1 << 9:
        raise Break("unknown_call", f"{owner.describe()}.__new__")
    cls = owner.real
    if len(args) + len(kwargs) > 1 and not issubclass(cls, dict | list | tuple | int | float | str):
        passes_over = class_attribute(cls, "__new__") is object.__new__
        if not passes_over or class_attribute(cls, "__init__") is object.__init__:
            t.raise_unworded(TypeError, "object.__new__ with too many arguments")
    return bare_instance(t, cls, args[1:], kwargs)


@knows(object.__eq__, least=2, most=2)
def _object_eq(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return TRUE if t.identical(args[0], args[1]) else ConstValue(NotImplemented)


@knows(object.__ne__, least=2, most=2)
def _object_ne(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    return not t.same_or_equal(args[0], args[1])


@knows(type.mro, least=1, most=1)
def _mro(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        order = type.mro(t.look(args[0]).constant())
    except TypeError as error:
        raise Break("exception", f"type.mro(...): {error}") from error
    return ListValue([t.pinned(cls) for cls in order])


@knows(type.__call__, least=1, keywords="*")
def _type_call(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return construct(t, t.look(args[0]), args[1:], kwargs)


@knows(object, most=0)
def _object(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ObjectValue(object)


@knows(types.FunctionType.__get__, least=2, most=3)
def _bind(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if t.look(args[1]).type() is type(None):
        return t.look(args[0])
    return BoundMethodValue(t.look(args[0]), args[1])


@knows(super, least=2, most=2)
def _super(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls = t.look(args[0])
    if not isinstance(cls, ClassValue) or len(args) != 2:
        raise Break("unknown_call", "super(...)")
    return SuperValue(cls.real, t.look(args[1]))


# --- conversions


@knows(bool, most=1)
def _bool(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return boolean(t.look(args[0]).truth(t)) if args else boolean(False)


def _number(special: str, convert: Callable[..., Any]) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        value = t.look(args[0]) if args else None
        if isinstance(value, TensorValue):
            raise Break("item", f"{convert.__name__}(tensor)")
        if (
            isinstance(value, ObjectValue)
            and (result := value.call_special(t, special)) is not None
        ):
            if result.type() is not convert:
                t.raise_unworded(TypeError, f"{convert.__name__}({value.describe()})")
            return result
        if convert is not complex and value is not None:
            args = [boxed(value) or value, *args[1:]]
        return t.evaluate(convert, args, kwargs)

    return handler


for _convert, _special in ((int, "__int__"), (float, "__float__"), (complex, "__complex__")):
    FUNCTIONS[_convert] = _number(_special, _convert)


def _by_special(fn: Callable[..., Any], special: str) -> Known:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        value = t.look(args[0])
        if isinstance(value, ObjectValue):
            result = value.call_special(t, special, *args[1:])
            if result is not None and not operators.is_not_implemented(result):
                return result
        return t.evaluate(fn, args, kwargs)

    return handler


for _fn, _special in ((round, "__round__"), (divmod, "__divmod__"), (math.floor, "__floor__"), (math.ceil, "__ceil__"), (math.trunc, "__trunc__")):  # fmt: skip
    FUNCTIONS[_fn] = _by_special(_fn, _special)


@knows(list, most=1)
def _list(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(t.sized_items(args[0]) if args else [])


@knows(tuple, most=1)
def _tuple(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(value := t.look(args[0]), TupleValue) and value.cls is tuple:
        return value
    return TupleValue(t.sized_items(args[0]) if args else [])


@knows(torch.Size, most=1)
def _size(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = t.list_items(args[0]) if args else []
    if any(boxed(t.look(item)) is not None for item in items):
        raise Break("unknown_call", "torch.Size(...)")
    return TupleValue([ConstValue(t.index(item)) for item in items], torch.Size)


@knows(set, most=1)
def _set(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    result = SetValue()
    for source in args:
        result.update(t, source)
    return result


@knows(frozenset, most=1)
def _frozenset(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and t.look(args[0]).type() is frozenset:
        return t.look(args[0])
    return set_of(t, frozenset, t.list_items(args[0]) if args else [])


for _cls in (dict, collections.OrderedDict):

    @knows(_cls, most=1, keywords="*")
    def _dict(t: Tracer, args: Args, kwargs: Kwargs, cls: type = _cls) -> Value:
        result = DictValue(cls=cls)
        fill_dict(t, result, args, kwargs)
        return result
