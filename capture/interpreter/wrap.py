"""Finds the kind of value for an object of the program, and adds the guards for that kind.

In: an object and its source. Out: a value. Content that is read later (items, attributes) is guarded later.
"""

from __future__ import annotations

import enum
import functools
import threading
import weakref
from collections import OrderedDict, defaultdict
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.guards.source import FRESH_KINDS
from frameloom.capture.interpreter.dispatch.wrapper import wrapper_of
from frameloom.capture.values.arrays.ndarray import ARRAY_CLASSES, ArrayValue
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import (
    FROZEN,
    LITERALS,
    NUMPY_FUNCTIONS,
    NUMPY_SCALARS,
    SINGLETONS,
    ConstValue,
)
from frameloom.capture.values.containers.container import (
    ListValue,
    SliceValue,
    TupleValue,
    is_plain_tuple_class,
)
from frameloom.capture.values.containers.dictionary import DefaultDictValue, DictValue
from frameloom.capture.values.containers.iterator import ReversedIterator, SequenceIterator
from frameloom.capture.values.draw import DrawFunction, draw_of
from frameloom.capture.values.function import (
    BoundMethodValue,
    BuiltinValue,
    FunctionValue,
    PartialValue,
)
from frameloom.capture.values.kinds import KINDS, kind
from frameloom.capture.values.module import ModuleValue
from frameloom.capture.values.numbers.symbolic import SymbolicNumber
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.opaque import OpaqueValue
from frameloom.capture.values.proxy import realize_proxy, realize_thread_local, realize_weakref
from frameloom.capture.values.static import ClassValue, PyModuleValue
from frameloom.capture.values.subclass import dispatch_of, is_recordable

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer

C_CALLABLES = (
    BuiltinFunctionType, MethodWrapperType, type(list.append), type(int.__add__), type(dict.__dict__["fromkeys"]),
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch.jit.ScriptFunction, *NUMPY_FUNCTIONS,
)  # fmt: skip
C_MEMBERS = (MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType)
class_name = type.__dict__["__name__"].__get__  # not changed by a metaclass
CALLABLE_KINDS = frozenset({"method", "builtin_function_or_method", "cython_function_or_method"})


def realize(t: Tracer, obj: Any, origin: Origin) -> Value:
    # `isinstance` may read the object's `__class__`, which may run code of the program: only the type is read
    # here.
    cls = type(obj)
    if class_name(cls) in CALLABLE_KINDS and (draw := draw_of(obj)) is not None:
        t.guards.add(origin, "is", obj)
        return DrawFunction(obj, origin, draw)
    by_type = KINDS.get(cls)
    if by_type is not None:
        return by_type(t, obj, origin)
    if issubclass(cls, torch.Tensor):
        return _tensor(t, obj, origin)
    if issubclass(cls, type):
        t.guards.add(origin, "is", obj)
        return ClassValue(obj, origin)
    if issubclass(cls, ModuleType):
        t.guards.add(origin, "is", obj)
        if cls.__getattribute__ is not ModuleType.__getattribute__:
            return OpaqueValue(obj, origin)
        return PyModuleValue(obj, origin)
    if issubclass(cls, functools._lru_cache_wrapper):
        t.guards.add(origin, "is", obj)
        return BuiltinValue(obj, origin)
    if issubclass(cls, C_CALLABLES):
        return _builtin(t, obj, origin)
    if issubclass(cls, _capture.JitFunction):
        t.guards.add(origin, "is", obj)
        return t.inside_jitted(obj)
    if issubclass(cls, enum.Enum) or cls in SINGLETONS or issubclass(cls, CodeType):
        t.guards.add(origin, "is", obj)
        return ConstValue(obj, origin)
    if issubclass(cls, torch.device):
        t.guards.add(origin, "type", cls)
        t.guards.add(origin.child("attr", "type"), "equal", obj.type)
        t.guards.add(origin.child("attr", "index"), "equal", obj.index)
        return ConstValue(obj, origin)
    if issubclass(cls, range | slice):
        return _bounds(t, obj, origin)
    if issubclass(cls, NUMPY_SCALARS) and origin.kind in FRESH_KINDS:
        t.guards.add(origin, "type", cls)
        return OpaqueValue(obj, origin)  # a new object each time; its value cannot be guarded
    if issubclass(cls, FROZEN):
        t.guards.add(origin, "is", obj)
        return ConstValue(obj, origin)
    t.guards.add(origin, "type", cls)
    if issubclass(cls, torch.nn.Module):
        return ModuleValue(cls, obj, origin)
    return _instance(t, obj, origin)


def _instance(t: Tracer, obj: Any, origin: Origin) -> Value:
    cls = type(obj)
    if issubclass(cls, tuple):
        t.guard_length(origin, cls, len(obj))
        place = "item" if cls.__getitem__ is tuple.__getitem__ else "base_item"
        items = [t.wrap(tuple.__getitem__(obj, i), origin.child(place, i)) for i in range(len(obj))]
        if is_plain_tuple_class(cls):
            return TupleValue(items, cls, obj, origin)
        return (
            ObjectValue(cls, obj, origin, TupleValue(items, cls, obj, origin))
            if is_python_class(cls)
            else OpaqueValue(obj, origin)
        )
    if cls is SimpleNamespace:
        return ObjectValue(cls, obj, origin)
    if not (cls.__flags__ & 1 << 9):  # not a heap type: written in C
        return OpaqueValue(obj, origin)
    if str(cls.__module__).partition(".")[0] in OPAQUE_MODULES:
        return OpaqueValue(obj, origin)
    if issubclass(cls, dict):
        is_default = issubclass(cls, defaultdict)
        table = (
            DefaultDictValue.existing(t, obj, origin) if is_default else DictValue(obj, origin, cls)
        )
        return ObjectValue(cls, obj, origin, table)
    if issubclass(cls, list) and is_python_class(cls):
        return ObjectValue(cls, obj, origin, ListValue.existing(t, obj, origin))
    if (inside := _boxed(t, obj, origin)) is not None:
        return ObjectValue(cls, obj, origin, inside)
    if issubclass(
        cls, list | set | frozenset | str | int | float | bytes | complex | BaseException
    ):
        return OpaqueValue(obj, origin)
    if is_python_class(cls):
        return ObjectValue(cls, obj, origin)
    return OpaqueValue(obj, origin)


def _boxed(t: Tracer, obj: Any, origin: Origin) -> ConstValue | None:
    """Returns the number or text inside an instance of a subclass of int, float or str, and guards it."""
    cls = type(obj)
    base = next((one for one in BOXED if issubclass(cls, one)), None)
    if base is None or not is_python_class(cls):
        return None
    if base is str:  # no attribute in C shows the text alone
        t.guards.add(origin, "is", obj)
        return ConstValue(str.__str__(obj))
    if class_attribute(cls, "real") is not base.__dict__["real"]:
        return None
    plain = base.__dict__["real"].__get__(obj)
    t.guards.add(origin.child("attr", "real"), "equal", plain)
    return ConstValue(plain)


BOXED = (int, float, str)
OPAQUE_MODULES = frozenset(
    {
        "frameloom",
        "numpy",
        "threading",
        "_thread",
        "_io",
        "io",
        "concurrent",
        "asyncio",
        "multiprocessing",
        "socket",
    }
)
PLAIN_LAYOUTS = frozenset({object, dict, OrderedDict, tuple, list, SimpleNamespace, *BOXED})


def is_python_class(cls: type) -> bool:
    """Whether only Python code defines the layout of instances, so that their attributes are their whole
    state."""
    entry = _python_classes.get(id(cls))
    if entry is not None and entry[0]() is cls:
        return entry[1]
    answer = all(
        base in PLAIN_LAYOUTS
        or base.__basicsize__ == object.__basicsize__
        or is_class_statement(base)
        for base in cls.__mro__
    )
    key = id(cls)
    forget = _python_classes.pop  # it outlives this module's names when Python exits
    _python_classes[key] = weakref.ref(cls, lambda _: forget(key, None)), answer
    return answer


_python_classes: dict[int, tuple[weakref.ref[type], bool]] = {}  # classes may define their own hash
OF_THE_CLASS = ("__dict__", "__weakref__")


def is_class_statement(cls: type) -> bool:
    """Whether a class statement made the class. A class written in C has methods and attributes in C."""
    if not cls.__flags__ & 1 << 9:
        return False
    for name, member in cls.__dict__.items():
        kind = type(member)
        if kind in C_MEMBERS and member.__objclass__ is cls and name not in OF_THE_CLASS:
            return False
        if name == "__new__" and kind is BuiltinFunctionType and member.__self__ is cls:
            return False
    return True


@kind(*LITERALS - {int, float})
def _equal(t: Tracer, obj: Any, origin: Origin) -> Value:
    t.guards.add(origin, "equal", obj)
    return ConstValue(obj, origin)


@kind(int, float)
def _number(t: Tracer, obj: Any, origin: Origin) -> Value:
    if t.options.follows_numbers and t.session.dynamic_policy.varies(
        t.roots.function.__code__, origin, obj
    ):
        t.guards.add(origin, "type", type(obj))
        return SymbolicNumber(t, obj, origin)
    return _equal(t, obj, origin)


@kind(torch.Tensor, torch.nn.Parameter)
def _tensor(t: Tracer, obj: Any, origin: Origin) -> Value:
    if type(obj) in (torch.Tensor, torch.nn.Parameter) or is_recordable(type(obj)):
        return t.tensor(obj, origin)
    t.guards.add(origin, "type", type(obj))
    if dispatch_of(type(obj)) is not None:
        return wrapper_of(t, obj, origin)
    return OpaqueValue(obj, origin)


def _array(t: Tracer, obj: Any, origin: Origin) -> Value:
    t.guards.add(origin, "type", type(obj))
    return ArrayValue(None, type(obj), obj, origin)


kind(*ARRAY_CLASSES)(_array)


@kind(FunctionType)
def _function(t: Tracer, obj: Any, origin: Origin) -> Value:
    if origin.kind in FRESH_KINDS:
        t.guards.add(origin, "type", FunctionType)
        t.guards.add(origin.child("func_code"), "is", obj.__code__)
        t.guards.add(origin.child("func_globals"), "is", obj.__globals__)
    else:
        t.guards.add(origin, "is", obj)
    return FunctionValue(obj, origin)


@kind(MethodType)
def _method(t: Tracer, obj: Any, origin: Origin) -> Value:
    t.guards.add(origin, "type", MethodType)
    func = t.look(t.wrap(obj.__func__, origin.child("method_func")))
    return BoundMethodValue(func, t.wrap(obj.__self__, origin.child("method_self")), origin, obj)


def _builtin(t: Tracer, obj: Any, origin: Origin) -> Value:
    owner = getattr(obj, "__self__", None)
    is_free = isinstance(owner, ModuleType | type | None) or type(owner).__name__.startswith(
        "pybind11_"
    )
    if type(obj) is BuiltinFunctionType and not is_free:
        bound = _bound_builtin(t, obj, owner, origin)
        if bound is not None:
            return bound
    if isinstance(obj, BuiltinFunctionType | MethodWrapperType) and not is_free:
        t.guards.add(origin, "type", type(obj))
        return OpaqueValue(obj, origin)  # bound to an object that the guards cannot reach
    t.guards.add(origin, "is", obj)
    return BuiltinValue(obj, origin)


def _bound_builtin(t: Tracer, obj: Any, owner: Any, origin: Origin) -> Value | None:
    """Returns a method of an object whose class is written in C, such as `items.append`; None if the class
    has no such method under its name."""
    method = class_attribute(type(owner), obj.__name__)
    if not isinstance(method, MethodDescriptorType) or method.__objclass__.__flags__ & 1 << 9:
        return None
    if obj.__qualname__ != method.__qualname__ or method.__get__(owner) != obj:
        return None
    t.guards.add(origin, "type", BuiltinFunctionType)
    t.guards.add(origin.child("attr", "__name__"), "equal", obj.__name__)
    bound = t.look(t.wrap(owner, origin.child("attr", "__self__")))
    return BoundMethodValue(BuiltinValue(method), bound, origin, obj)


def _bounds(t: Tracer, obj: Any, origin: Origin) -> Value:
    t.guards.add(origin, "type", type(obj))
    bounds = {name: origin.child("attr", name) for name in ("start", "stop", "step")}
    if type(obj) is slice:
        start, stop, step = (t.wrap(getattr(obj, n), at) for n, at in bounds.items())
        return SliceValue(start, stop, step, obj, origin)
    for name, at in bounds.items():  # by value: a range is a constant, its bounds are not dynamic
        t.guards.add(at, "equal", getattr(obj, name))
    return ConstValue(obj, origin)


@kind(
    *(type(iter(c)) for c in ([], (), range(0), {}, {}.values(), {}.items(), set())),
    type(reversed([])),
)
def _iterator(t: Tracer, obj: Any, origin: Origin) -> Value:
    """Returns the value of an iterator that may be in the middle of its items, and guards its state."""
    t.guards.add(origin, "type", type(obj))
    try:
        state = obj.__reduce__() if t.options.follows_iterators else ()
    except RuntimeError:  # its dictionary changed
        state = ()
    if len(state) < 2 or state[0] not in (iter, reversed):
        return OpaqueValue(obj, origin)
    place = origin.child("state")
    t.guards.add(place, "length", len(state))
    over = t.look(t.wrap(state[1][0], place.child("item", 1).child("item", 0)))
    if len(state) > 2:
        t.guards.add(place.child("item", 2), "equal", state[2])
    position = state[2] if len(state) > 2 and state[2] is not None else 0
    if isinstance(over, ConstValue):
        value = SequenceIterator(over, None, position)
    elif isinstance(obj, type(reversed([]))) and len(state) > 2:
        value = ReversedIterator(over, position + 1)
    else:
        value = SequenceIterator(over, None, position)
    value.cls, value.real, value.origin = type(obj), obj, origin
    return value


@kind(functools.partial)
def _partial(t: Tracer, obj: Any, origin: Origin) -> Value:
    t.guards.add(origin, "type", functools.partial)
    func = t.look(t.wrap(obj.func, origin.child("attr", "func")))
    args = t.look(t.wrap(obj.args, origin.child("attr", "args")))
    keywords = t.look(t.wrap(obj.keywords, origin.child("attr", "keywords")))
    assert isinstance(args, TupleValue)
    assert isinstance(keywords, DictValue)
    kwargs = {name: value for name, (_, value) in keywords.entries(t).items()}
    return PartialValue(func, args.items, kwargs, origin, obj)


@kind(MappingProxyType)
def _proxy(t: Tracer, obj: Any, origin: Origin) -> Value:
    return realize_proxy(t, obj, origin) or OpaqueValue(obj, origin)


@kind(CellType)
def _cell(t: Tracer, obj: Any, origin: Origin) -> Value:
    t.guards.add(origin, "type", CellType)
    return t.cell(obj, origin)


kind(weakref.ref)(realize_weakref)
kind(threading.local)(realize_thread_local)
