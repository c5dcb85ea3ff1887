"""Runs calls: follows wrappers of callables, binds arguments, and decides how each call is captured.

In: callee and arguments as values. Out: the result; or `Break`. A Python function is interpreted in a frame
of its own, a tensor function is recorded, a pure function of constants is evaluated. `builtins.py` has the
functions with rules of their own.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from abc import ABCMeta
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.autograd.hooked_tensors import check_hooking
from frameloom.capture.guards.class_lookup import MISSING, class_attribute
from frameloom.capture.interpreter import operators
from frameloom.capture.interpreter.call_rules import CALLABLES, FUNCTIONS, rule_of_class
from frameloom.capture.interpreter.dispatch.torch_dispatch import wrappers
from frameloom.capture.interpreter.generator import suspended
from frameloom.capture.interpreter.step_limits import MAX_DEPTH
from frameloom.capture.interpreter.torch_function import check_unseen, is_asked, overloads
from frameloom.capture.speculation.hoisting import array_of
from frameloom.capture.speculation.numpy_functions import chains_in
from frameloom.capture.symbolic.numbers_given import has_number, with_number
from frameloom.capture.values import policy
from frameloom.capture.values.arrays.numpy_values import call_kind
from frameloom.capture.values.base import Value
from frameloom.capture.values.binding import bind
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import plain
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import (
    BoundMethodValue,
    FunctionValue,
    PartialValue,
)
from frameloom.capture.values.module import ModuleValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.subclass import DEFAULT
from frameloom.capture.values.tensor import NEEDS_DATA
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

Arguments = tuple[list[Value], dict[str, Value]]
GENERATOR_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def call(
    t: Tracer, callee: Value, args: list[Value], kwargs: dict[str, Value], resumable: bool = False
) -> Value:
    """Captures `callee(*args, **kwargs)`. `resumable`: the call's result is the result of the caller's
    instruction, which does nothing after the call. So a break inside the call may resume there."""
    callee, args, kwargs = unwrap(t, t.look(callee), args, kwargs)
    if isinstance(callee, FunctionValue):
        return call_function(t, callee, args, kwargs, resumable)
    return callee.call(t, args, kwargs)


def unwrap(
    t: Tracer, callee: Value, args: list[Value], kwargs: dict[str, Value]
) -> tuple[Value, list[Value], dict[str, Value]]:
    """Follows callables that only pass a call on: bound methods, partials, objects with `__call__`, modules
    without hooks."""
    while True:
        if isinstance(callee, BoundMethodValue):
            callee, args = t.look(callee.func), [_owner_of(t, callee), *args]
        elif isinstance(callee, PartialValue):
            args, kwargs = [*callee.args, *args], {**callee.kwargs, **kwargs}
            callee = t.look(callee.func)
        elif isinstance(callee, FunctionValue) and callee.real in MODULE_CALLS and args:
            forward = module_forward(t, callee.real, t.look(args[0]))
            if forward is None:
                return callee, args, kwargs
            callee, args = forward, args[1:]
        elif isinstance(callee, ObjectValue) and callee.special("__call__") is not MISSING:
            callee, args = (
                t.class_function(callee.cls, "__call__", callee.special("__call__")),
                [callee, *args],
            )
        else:
            return callee, args, kwargs


def _owner_of(t: Tracer, method: BoundMethodValue) -> Value:
    """Returns the object that the method is called on. A jitted module's own method may be found in a copy of
    the module's dictionary; then this is the copy."""
    if isinstance(method.real, MethodType) and t.is_jitted(method.real.__func__):
        frame = t.frame
        jitted: Any = method.real.__func__
        if frame is not None and jitted.called_by is frame.code:
            return frame.slots[frame.code.co_varnames[0]]
    return method.owner


MODULE_CALLS = (torch.nn.Module._wrapped_call_impl, torch.nn.Module._call_impl)
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)  # fmt: skip


def module_forward(t: Tracer, entry: Any, module: Value) -> Value | None:
    """Returns the `forward` method that runs if a module without hooks is called through `entry`. Returns
    None if the module has hooks; then the Python code of `entry` is interpreted."""
    if not isinstance(module, ModuleValue):
        return None
    if entry is torch.nn.Module._wrapped_call_impl:
        compiled = module.getattr(t, "_compiled_call_impl")
        if not isinstance(compiled, ConstValue):
            return None
    if (
        class_attribute(module.cls, "_call_impl") is not torch.nn.Module._call_impl
        or module.own(t, "_call_impl") is not None
    ):
        return None
    for name in HOOKS:
        table = module.own(t, name)
        if table is None or table.truth(t):
            return None
    globals_ = t.globals_of(torch.nn.Module._call_impl, t.roots.object(torch.nn.Module._call_impl))
    for name in GLOBAL_HOOKS:
        table = globals_.get(t, ConstValue(name))
        if table is None or table.truth(t):
            return None
    return module.getattr(t, "forward")


# Their functions ask whether an argument overrides them.
OVERRIDABLE = frozenset(
    ["torch._tensor", "torch.nn.functional", "torch.functional", "torch._jit_internal"]
)


def call_function(
    t: Tracer,
    function: FunctionValue,
    args: list[Value],
    kwargs: dict[str, Value],
    resumable: bool = False,
) -> Value:
    real = function.real
    if real is not None:
        if real.__module__ in OVERRIDABLE and real is not DEFAULT:
            if (answer := t.overridden(real, args, kwargs)) is not None:
                return answer
            is_watched = t.settings.function_mode is not None
            # It may call functions that are overridden.
            if is_watched or overloads(t, [*args, *kwargs.values()]):
                return inline(t, function, args, kwargs, resumable)
        known = FUNCTIONS.get(real)
        if known is not None:
            if policy.is_torchs(real.__globals__):
                check_unseen(t, real)
            return known(t, args, kwargs)
        by_name = CALLABLES.get(real.__code__.co_qualname)
        if by_name is not None and policy.is_torchs(real.__globals__):
            check_unseen(t, real)
            t.guards.add(function._own(t).child("func_code"), "is", real.__code__)
            if (result := by_name(t, function, args, kwargs)) is not None:
                return result
        if real.__module__ == "frameloom.api":
            return front_door(t, real.__name__)
        if getattr(real, "__frameloom_disable__", False):
            raise Break("disabled", f"{function.name}(...)")
        if policy.is_other_compilers(real):
            if policy.is_torchs_own(real._torchdynamo_orig_callable) or policy.is_compiled(real):
                original = function.getattr(t, "_torchdynamo_orig_callable")
                return t.call(original, args, kwargs)
            raise Break("library_call", f"{function.name}(...), which is left to torch.compile")
        if real.__qualname__ == "singledispatch.<locals>.dispatch":
            return dispatched(t, function, args)
        verdict = policy.function_verdict(real)
        if t.settings.function_mode is not None and policy.is_torchs(real.__globals__):
            if verdict == "record":  # the mode sees what it calls
                return inline(t, function, args, kwargs, resumable)
            if verdict != "inline":
                check_unseen(t, real)
        if verdict == "record":
            if real.__name__ in NEEDS_DATA and real.__module__ == "torch._tensor":
                check_hooking(t, real.__name__, args)
                raise Break(NEEDS_DATA[real.__name__], f"tensor.{real.__name__}(...)")
            return t.torch_call(real, args, kwargs)
        if verdict == "evaluate":
            if any(
                isinstance(t.look(a), ClassValue | ObjectValue) for a in (*args, *kwargs.values())
            ):
                raise Break(
                    "library_call", f"{real.__module__}.{function.name}(...)"
                )  # the function may call it
            return t.evaluate(real, args, kwargs)
        if verdict == "state":
            return state(t, real, args, policy.STATE_READERS[real])
        if verdict == "break":
            raise Break("library_call", f"{real.__module__}.{function.name}(...)")
        if chains_in(real.__code__) is not None:
            array = array_of(t, function, args, kwargs)
            if array is not None:
                return array
    return inline(t, function, args, kwargs, resumable)


def front_door(t: Tracer, name: str) -> Value:
    """Captures a call of one of Frameloom's own functions."""
    if name == "is_compiling":
        return t.report_compiling()
    raise Break(
        "graph_break" if name == "graph_break" else "library_call", f"frameloom.{name}(...)"
    )


def inline(
    t: Tracer, function: FunctionValue, args: list[Value], kwargs: dict[str, Value], resumable: bool
) -> Value:
    """Interprets a Python function."""
    from frameloom.capture.interpreter.frame import Frame  # frames call, and calls make frames

    code = function.code
    if function.real is not None:
        t.guards.add(function._own(t).child("func_code"), "is", code)
    if t.depth >= MAX_DEPTH:
        raise Break("too_deep", f"{function.name}(...)")
    if (name := policy.may_inspect_frame(code)) is not None:
        raise Break("library_call", f"{function.name}(...), which calls {name}")
    slots = bind(t, function, args, kwargs)
    is_suspended = bool(code.co_flags & GENERATOR_FLAGS)
    frame = Frame(
        t, code, function.globals(t), slots, function.closure(t), resumable and not is_suspended
    )
    return suspended(frame, function, args, kwargs) if is_suspended else frame.run()


def call_builtin(t: Tracer, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Calls something that is not written in Python."""
    try:
        known = FUNCTIONS.get(fn)
    except TypeError:
        known = None
    is_watched = t.settings.function_mode is not None
    if policy.is_recorded(fn) or (is_watched and is_asked(fn)):
        if (answer := t.overridden(fn, args, kwargs)) is not None:
            return answer
        if wrappers(t, [*args, *kwargs.values()]):  # the rules are for tensors of the graph
            known = None
    if (
        is_watched
        and (policy.is_recorded(fn) or policy.is_torchs_builtin(fn))
        and known is not None
    ):
        check_unseen(t, fn)
    if known is not None:
        return known(t, args, kwargs)
    if policy.is_recorded(fn):
        name = getattr(fn, "__name__", "")
        if name in NEEDS_DATA:
            check_hooking(t, name, args)
            raise Break(NEEDS_DATA[name], f"tensor.{name}(...)")
        by_class = rule_of_class(type(fn))
        if by_class is not None and (made := by_class(t, fn, args, kwargs)) is not None:
            return made
        if has_number(t, [*args, *kwargs.values()]):
            return with_number(t, fn, args, kwargs)
        return t.torch_call(fn, args, kwargs)
    if fn in operators.FUNCTIONS and len(args) == 2 and not kwargs:
        return operators.binary(t, fn, args[0], args[1])
    if policy.is_pure(fn):
        return t.evaluate(fn, args, kwargs)
    if policy.reads_state(fn) and not kwargs:
        return state(t, fn, args)
    if (by_class := rule_of_class(type(fn))) is not None:
        return by_class(t, fn, args, kwargs)
    kind = "numpy" if fn is torch.frombuffer else call_kind(fn, args)
    raise Break(kind, f"{getattr(fn, '__name__', fn)}(...)")


def state(t: Tracer, fn: Any, args: list[Value], guard_reader: Any = None) -> Value:
    """Reads a setting of PyTorch. The guards read it at each call, with `guard_reader` if given, a function
    written in C."""
    result = t.evaluate(fn, args, {})
    if not isinstance(result, ConstValue):
        raise Break("unknown_call", f"{fn.__name__}(...) returns an object")
    t.guards.returns(guard_reader or fn, tuple(plain(t.look(arg)) for arg in args), result.real)
    return result


def dispatched(t: Tracer, function: FunctionValue, args: list[Value]) -> Value:
    """Returns the implementation that `functools.singledispatch` chooses, and guards its registry."""
    names = function.real.__code__.co_freevars
    registry = t.look(function.closure(t)[names.index("registry")].content)
    assert isinstance(registry, DictValue)
    cache = function.real.__closure__[names.index("dispatch_cache")].cell_contents
    cls, keys = t.look(args[0]).constant(), registry.entries(t)
    # The answer of an abstract class changes with its registrations, and entries that this capture registered
    # are not in the real registry yet.
    is_odd = type(cache) is not weakref.WeakKeyDictionary
    if is_odd or registry.written or any(isinstance(key, ABCMeta) for key in keys):
        raise Break("unknown_call", f"dispatch({cls.__name__})")
    return t.pinned(functools._find_impl(cls, registry.real))  # type: ignore[attr-defined]
