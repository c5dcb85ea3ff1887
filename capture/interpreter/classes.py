"""Calls of classes: plain instances of Python classes, and some built-in classes.

In: a class and arguments as values. Out: the new instance. Built-in classes that act like functions (`int`,
`range`, `enumerate`...) are in `builtins.py`.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.class_lookup import MISSING, class_attribute, is_subtype, works_as
from frameloom.capture.guards.thread_warnings import warnings_here
from frameloom.capture.interpreter.call_rules import FUNCTIONS
from frameloom.capture.interpreter.torch_function import as_subclass, check_unseen, is_asked
from frameloom.capture.interpreter.wrap import BOXED, OPAQUE_MODULES, PLAIN_LAYOUTS, is_python_class
from frameloom.capture.values import policy
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import (
    ListValue,
    TupleValue,
    is_plain_tuple_class,
)
from frameloom.capture.values.containers.dictionary import DefaultDictValue, DictValue
from frameloom.capture.values.exception import ExceptionValue, is_simple, takes_anything
from frameloom.capture.values.instance import InstanceValue
from frameloom.capture.values.module import ModuleValue
from frameloom.capture.values.numbers.symbolic import is_symbolic
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.static import ClassValue, GradModeValue
from frameloom.capture.values.subclass import dispatch_of, is_recordable
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


ABSTRACT = 1 << 20  # flag of classes that still have abstract methods


def instantiate(
    t: Tracer, cls_value: ClassValue, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    cls = cls_value.real
    known = FUNCTIONS.get(cls)
    if known is not None:
        if policy.is_torchs_builtin(cls):
            check_unseen(t, cls)
        return known(t, args, kwargs)
    is_seen = t.settings.function_mode is not None and is_asked(cls)
    if is_seen and (answer := t.overridden(cls, args, kwargs)) is not None:
        return answer
    if cls in GradModeValue.CLASSES:
        return _grad_mode(t, cls, args, kwargs)
    meta_call = class_attribute(type(cls), "__call__")
    if isinstance(meta_call, type):  # for example a TypedDict
        return t.call(t.pinned(meta_call), args, kwargs)
    if isinstance(meta_call, FunctionType):
        return t.call_method(type(cls), "__call__", [cls_value, *args], kwargs)
    if meta_call is type.__call__:
        return construct(t, cls_value, args, kwargs)
    if policy.is_pure(cls) or issubclass(cls, torch.finfo | torch.iinfo):
        return t.evaluate(cls, args, kwargs)
    raise Break("unknown_call", f"{cls.__name__}(...)")


def construct(
    t: Tracer, cls_value: ClassValue, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Does what `type.__call__` does."""
    cls = cls_value.real
    if policy.is_pure(cls) or issubclass(cls, torch.finfo | torch.iinfo):
        return t.evaluate(cls, args, kwargs)
    check_finalizer(cls)
    if issubclass(cls, BaseException):
        return _exception(t, cls, args, kwargs)
    if (
        issubclass(cls, tuple)
        and is_plain_tuple_class(cls)
        and class_attribute(cls, "__init__") is object.__init__
    ):
        return _namedtuple(t, cls, args, kwargs)
    if issubclass(cls, torch.nn.Module):
        return _instance(t, cls_value, args, kwargs)
    if cls.__module__.startswith("frameloom.capture.library."):
        return _instance(t, cls_value, args, kwargs)
    if issubclass(cls, torch.Tensor) and (is_recordable(cls) or dispatch_of(cls) is not None):
        return _instance(t, cls_value, args, kwargs)
    if issubclass(cls, torch.Tensor | type) or cls.__module__.partition(".")[0] in OPAQUE_MODULES:
        raise Break("unknown_call", f"{cls.__name__}(...)")
    if (
        not is_python_class(cls)
        or not cls.__flags__ & 1 << 9
        or (
            cls.__module__.partition(".")[0] == "torch"
            and not cls.__module__.startswith(policy.INTERPRETED_TORCH)
        )
    ):
        raise Break("unknown_call", f"{cls.__name__}(...)")
    return _instance(t, cls_value, args, kwargs)


def _instance(
    t: Tracer, cls_value: ClassValue, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    cls = cls_value.real
    new = class_attribute(cls, "__new__")
    if works_as(new, staticmethod):
        result = t.look(t.call(t.pinned(new.__func__), [cls_value, *args], kwargs))
    elif new is torch.Tensor.__new__ and not kwargs and is_plain_tensor(t, args):
        result = as_subclass(t, t.look(args[0]), cls)
    elif not isinstance(new, BuiltinFunctionType) or new.__self__ not in PLAIN_LAYOUTS:
        raise Break("unknown_call", f"{cls.__name__}(...)")
    else:
        if (
            new is object.__new__
            and (args or kwargs)
            and class_attribute(cls, "__init__") is object.__init__
        ):
            t.raise_unworded(TypeError, f"{cls.__name__}(...) with too many arguments")
        result = bare_instance(t, cls, args, kwargs)
    if is_subtype(result.type(), cls):
        initialize(t, result, args, kwargs)
    return result


def is_plain_tensor(t: Tracer, args: list[Value]) -> bool:
    """Whether the only argument is a tensor of no subclass. A class makes an alias of it."""
    return len(args) == 1 and type(t.look(args[0])) is TensorValue


def check_finalizer(cls: type) -> None:
    """Breaks for a class with a finalizer: an object of a capture may never really be made, so its finalizer
    would not run."""
    if class_attribute(cls, "__del__") is not MISSING:
        raise Break("unknown_call", f"{cls.__name__}(...), which has __del__")


def bare_instance(t: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Returns what `object.__new__` and those of dict, list, tuple, int, float and str make."""
    check_finalizer(cls)
    if cls.__flags__ & ABSTRACT:
        t.raise_unworded(TypeError, f"{cls.__name__}(...) of an abstract class")
    if not is_python_class(cls):
        raise Break("unknown_call", f"{cls.__name__}(...)")
    payload: Value | None = None
    if issubclass(cls, dict):
        is_default = issubclass(cls, defaultdict)
        payload = DefaultDictValue(cls=cls) if is_default else DictValue(cls=cls)
    elif issubclass(cls, list):
        payload = ListValue([])
    elif issubclass(cls, tuple):
        if len(args) > 1 or (kwargs and class_attribute(cls, "__init__") is object.__init__):
            t.raise_unworded(TypeError, f"{cls.__name__}(...) with arguments that tuple lacks")
        payload = TupleValue(t.sized_items(args[0]) if args else [])
    elif (base := next((one for one in BOXED if issubclass(cls, one)), None)) is not None:
        payload = _number_or_text(t, base, args, kwargs)
    return (
        ModuleValue(cls) if issubclass(cls, torch.nn.Module) else ObjectValue(cls, payload=payload)
    )


def _number_or_text(t: Tracer, base: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Returns what a new instance of a subclass of int, float or str holds."""
    inside = t.look(t.call_builtin(base, args, kwargs))
    if not isinstance(inside, ConstValue) or inside.type() is not base or is_symbolic(inside):
        raise Break("unknown_call", f"{base.__name__}.__new__(...)")
    return inside


def initialize(t: Tracer, instance: Value, args: list[Value], kwargs: dict[str, Value]) -> None:
    assert isinstance(instance, InstanceValue)
    init = class_attribute(instance.cls, "__init__")
    if isinstance(init, FunctionType):
        result = t.look(t.call_method(instance.cls, "__init__", [instance, *args], kwargs))
        if not (isinstance(result, ConstValue) and result.real is None):
            raise Break(
                "exception", f"{instance.cls.__name__}(...), whose __init__ returns something"
            )
    elif init is object.__init__:  # takes no arguments, but ignores those that were for __new__
        if (args or kwargs) and class_attribute(instance.cls, "__new__") is object.__new__:
            t.raise_unworded(TypeError, f"{instance.cls.__name__}(...) with too many arguments")
    else:
        t.call_builtin(init, [instance, *args], kwargs)


def _namedtuple(t: Tracer, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not hasattr(cls, "_fields"):  # from torch.return_types: takes one sequence
        items = t.list_items(args[0]) if len(args) == 1 and not kwargs else []
        if len(items) != cls.n_fields:
            raise Break("unknown_call", f"{cls.__name__}(...)")
        return TupleValue(items, cls)
    values = dict(zip(cls._fields, args, strict=False)) | kwargs
    for name, default in cls._field_defaults.items():
        values.setdefault(name, t.pinned(default))
    if len(args) > len(cls._fields) or set(values) != set(cls._fields):
        raise Break("unknown_call", f"{cls.__name__}(...)")
    return TupleValue([values[name] for name in cls._fields], cls)


def _exception(
    t: Tracer, cls: type[BaseException], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    init = class_attribute(cls, "__init__")
    own_init = isinstance(init, FunctionType)
    own_new = isinstance(class_attribute(cls, "__new__"), staticmethod | FunctionType)
    checks = not own_init and not takes_anything(cls, len(args))
    if own_new or checks or (kwargs and not own_init) or (own_init and not is_simple(cls)):
        raise Break("exception", f"{cls.__name__}(...)")
    value = ExceptionValue(cls, args)
    if own_init:
        initialize(t, value, args, kwargs)
    return value


def _grad_mode(t: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if cls is not torch.autocast and (
        kwargs or len(args) > 1 or (args and cls is not torch.inference_mode)
    ):
        raise Break("context_manager", f"{cls.__name__}(...)")
    try:
        plain_args = [t.look(a).constant() for a in args]
        plain_kwargs = {name: t.look(a).constant() for name, a in kwargs.items()}
        make = functools.partial(cls, *plain_args, **plain_kwargs)
        with warnings_here("error"):
            make()
    except Exception as error:
        # It warns or raises again when it is called by plain Python.
        raise Break("context_manager", f"{cls.__name__}(...)") from error
    return GradModeValue(cls, make)
