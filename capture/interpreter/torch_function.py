"""Calls of torch functions that the classes of arguments override by `__torch_function__`.

In: a torch function and its arguments as values. Out: what `__torch_function__` returns; None if no
argument overrides the function. What PyTorch passes to `__torch_function__` is found by a call with stand-ins
for these arguments. A function mode of the program that is active is asked first. The code of the program is
interpreted; `torch.Tensor.__torch_function__` has a rule.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from types import FunctionType, MethodWrapperType
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from frameloom.capture.guards.thread_warnings import warnings_here
from frameloom.capture.tensors.fake import is_wrapper
from frameloom.capture.tensors.leaves import require_gradient
from frameloom.capture.values import policy
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import ListValue, TupleValue
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.subclass import (
    DEFAULT,
    NewLeaf,
    SubclassValue,
    function_of,
    is_recordable,
)
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

SET_GRADIENTS: Any = torch._C._set_grad_enabled
OPERATORS = frozenset(fn for name, fn in vars(operator).items() if name in operator.__all__)
ALIAS = torch.ops.aten.alias.default


class Dispatched(BaseException):
    """Raised by a stand-in: a function calls `__torch_function__` with these arguments."""

    def __init__(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any] | None) -> None:
        super().__init__()
        self.func, self.types = func, types
        self.args_given, self.kwargs_given = args, kwargs


def _stop(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
    raise Dispatched(func, types, args, kwargs)


class StopMode(TorchFunctionMode):
    """Stands in for the function modes of the program."""

    __torch_function__ = _stop  # type: ignore[assignment]


class TensorStandIn(torch.Tensor):
    __torch_function__ = classmethod(_stop)  # type: ignore[assignment]


class ObjectStandIn:
    __torch_function__ = classmethod(_stop)


def overloads(t: Tracer, args: Iterable[Value]) -> list[Value]:
    """Returns the arguments whose classes override torch functions, one of each class, in PyTorch's order:
    from left to right, subclasses before their bases. Lists are searched, too."""
    owners: list[Value] = []
    for arg in args:
        value = t.look(arg)
        if isinstance(value, ListValue | TupleValue):
            candidates = overloads(t, value.items) if value.items else []
        else:
            candidates = [value] if function_of(t, value) is not None else []
        for one in candidates:
            cls = one.type()
            if all(other.type() is not cls for other in owners):
                places = (k for k, other in enumerate(owners) if issubclass(cls, other.type()))
                owners.insert(next(places, len(owners)), one)
    return owners


def overridden(
    t: Tracer, fn: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """Returns the result of a call of a torch function if an argument or a function mode overrides it."""
    owners, mode = overloads(t, [*args, *kwargs.values()]), t.settings.function_mode
    if not owners and mode is None:
        return None
    # A subclass, or a call that is not the program's.
    if mode is not None and (owners or t.settings.off):
        raise Break("tensor_subclass", f"{getattr(fn, '__name__', fn)}(...) in a function mode")
    is_native = fn in OPERATORS or is_asked(fn) or isinstance(fn, MethodWrapperType)
    if not is_native and not (isinstance(fn, FunctionType) and policy.is_torchs(fn.__globals__)):
        # One of our functions, which stands for several.
        if mode is not None or len(owners) > 1 or function_of(t, owners[0]) is not DEFAULT:
            raise Break("tensor_subclass", f"{getattr(fn, '__name__', fn)}(...)")
        with t.settings.functions_off():
            result = t.torch_call(fn, args, kwargs)
        return converted(t, result, owners[0].type())
    known: dict[int, Value] = {}
    kept: list[Any] = []

    def stand_in(value: Value) -> Any:
        value = t.look(value)
        if function_of(t, value) is not None:
            is_tensor = isinstance(value, TensorValue)
            made: Any = torch.empty(0).as_subclass(TensorStandIn) if is_tensor else ObjectStandIn()
        elif mode is not None and isinstance(value, TensorValue):
            made = torch.empty(0)
            if value.type() is torch.nn.Parameter:
                made = torch.nn.Parameter(made)
            elif value.type() is not torch.Tensor:
                raise Break("tensor_subclass", f"{value.describe()} in a function mode")
        elif isinstance(value, ListValue) and value.type() is list:
            made = [stand_in(item) for item in value.items]
        elif isinstance(value, TupleValue) and value.cls is tuple:
            made = tuple(stand_in(item) for item in value.items)
        else:
            made = t.to_torch(value, fn)
        known[id(made)] = value
        kept.append(made)
        return made

    given = [stand_in(value) for value in args]
    named = {name: stand_in(value) for name, value in kwargs.items()}
    try:
        stop = nullcontext() if mode is None else StopMode()
        with torch._C._EnableTorchFunction(), stop, warnings_here("ignore"):  # type: ignore[attr-defined]
            fn(*given, **named) if named or _has_keywords(t) else fn(*given)
    except Dispatched as call:
        if isinstance(fn, FunctionType) and call.func is not fn:
            return None  # its code calls several functions
        values = [known[id(a)] if id(a) in known else t.from_python(a) for a in call.args_given]
        pairs = None if call.kwargs_given is None else call.kwargs_given.items()
        options = None if pairs is None else {
            name: known[id(a)] if id(a) in known else t.from_python(a) for name, a in pairs
        }  # fmt: skip
        function, types = call.func, call.types
    except Exception:
        return None  # it does not get as far
    else:
        return None
    is_python = isinstance(function, FunctionType | type)
    func = t.pinned(function) if is_python else BuiltinValue(function)
    if mode is not None:
        return ask_mode(t, mode, func, types, values, options)
    return dispatch(t, func, owners, values, options)


def _has_keywords(t: Tracer) -> bool:
    """Whether the call has `**`: then `__torch_function__` gets a dictionary, be it empty."""
    at = t.frame.at  # type: ignore[union-attr]
    return at.op == "CALL_FUNCTION_EX" and bool(at.arg & 1)


def is_asked(fn: Any) -> bool:
    """Whether a call of something written in C may do no more than ask who overrides it."""
    return policy.is_recorded(fn) or any(fn is one for one in (SET_GRADIENTS, *policy.PURE_TORCH))


def ask_mode(
    t: Tracer,
    mode: Value,
    func: Value,
    types: Any,
    args: list[Value],
    kwargs: dict[str, Value] | None,
) -> Value:
    """Calls `__torch_function__` of the function mode."""
    given = [func, TupleValue([t.pinned(cls) for cls in types]), TupleValue(args)]
    options = [] if kwargs is None else [t.table_of(kwargs)]
    with t.settings.asking_mode():
        method = t.look(mode.getattr(t, "__torch_function__"))
        if not isinstance(method, BoundMethodValue):
            raise Break("tensor_subclass", f"{mode.describe()}.__torch_function__")
        result = t.look(t.call(method, [*given, *options], {}))
    if isinstance(result, ConstValue) and result.real is NotImplemented:
        raise Break("tensor_subclass", f"{mode.describe()} without an answer")
    return result


def check_unseen(t: Tracer, fn: Any) -> None:
    """Breaks if a function mode is active and PyTorch may show it calls that the rule for `fn` does not
    make."""
    if t.settings.function_mode is not None and fn not in policy.UNSEEN:
        raise Break("library_call", f"{getattr(fn, '__name__', fn)}(...) in a function mode")


def dispatch(
    t: Tracer,
    func: Value,
    owners: list[Value],
    args: list[Value],
    kwargs: dict[str, Value] | None,
) -> Value:
    """Calls the `__torch_function__` of these arguments until one has an answer."""
    types = TupleValue([t.pinned(value.type()) for value in owners])
    for value in owners:
        own = function_of(t, value)
        if own is DEFAULT:
            result = by_default(t, value.type(), func, types, args, kwargs or {})
        else:
            options = [] if kwargs is None else [t.table_of(kwargs)]
            cls = t.pinned(value.type())
            result = t.look(
                t.call(t.pinned(own), [cls, func, types, TupleValue(args), *options], {})
            )
        if not (isinstance(result, ConstValue) and result.real is NotImplemented):
            return result
    t.raise_unworded(TypeError, f"{func.describe()}: no __torch_function__ has an answer")


def by_default(
    t: Tracer,
    cls: type,
    func: Value,
    types: TupleValue,
    args: list[Value],
    kwargs: dict[str, Value],
) -> Value:
    """Does what `torch.Tensor.__torch_function__` does."""
    if not all(issubclass(cls, t.look(given).constant()) for given in types.items):
        return ConstValue(NotImplemented)
    with t.settings.functions_off():
        result = t.look(t.call(func, args, kwargs))
    if func.real in torch.overrides.get_default_nowrap_functions():
        return result
    return converted(t, result, cls)


def converted(t: Tracer, value: Value, cls: type) -> Value:
    """Returns a result as an instance of the class, or a tuple or list with such instances."""
    value = t.look(value)
    if cls is torch.Tensor:
        return value
    if isinstance(value, TensorValue) and not issubclass(value.type(), cls):
        return as_subclass(t, value, cls)
    if isinstance(value, ListValue | TupleValue):
        items = [t.look(item) for item in value.items]
        if not any(isinstance(item, TensorValue | ListValue | TupleValue) for item in items):
            return value
        items = [converted(t, item, cls) for item in items]
        return TupleValue(items, value.cls) if isinstance(value, TupleValue) else ListValue(items)
    return value


def as_subclass(t: Tracer, tensor: TensorValue, cls: type) -> Value:
    """Returns an alias of the tensor that is an instance of the class."""
    if cls is not torch.Tensor and not is_recordable(cls):
        raise Break("tensor_subclass", f"as_subclass({cls.__name__})")
    with t.settings.functions_off():
        alias = t.torch_call(ALIAS, [tensor], {})
    assert isinstance(alias, TensorValue)
    if cls is torch.Tensor:
        return alias
    made = t.tensors[id(alias.fake)] = SubclassValue(alias.fake, cls=cls, inner=tensor)
    return made


def make_subclass(t: Tracer, tensor: TensorValue, cls: type, requires_grad: bool) -> Value:
    """Returns what `_make_subclass` does: a detached alias that may begin a history."""
    if torch.is_inference_mode_enabled() or is_wrapper(tensor.fake):
        raise Break("tensor_subclass", f"{cls.__name__}(...) in inference mode or a transform")
    site = t.site_or(Break("autograd", f"{cls.__name__}(...), which is needed outside"))
    with t.settings.functions_off():
        alias = t.torch_call(torch.Tensor.detach, [tensor], {})
    assert isinstance(alias, TensorValue)
    if requires_grad:
        require_gradient(t, alias)
    leaf = NewLeaf(t.recorder.fakes, site)
    made = t.tensors[id(alias.fake)] = SubclassValue(alias.fake, cls=cls, inner=tensor, leaf=leaf)
    return made


def class_of(t: Tracer, value: Value) -> type:
    """Returns the class that `as_subclass` gets."""
    cls = t.look(value)
    is_tensors = isinstance(cls, ClassValue) and issubclass(cls.real, torch.Tensor)
    if not is_tensors:
        raise Break("tensor_subclass", f"as_subclass({cls.describe()})")
    return cls.real  # type: ignore[no-any-return]
