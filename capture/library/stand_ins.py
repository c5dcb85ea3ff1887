"""Functions of PyTorch that code in `interpreted.py` replaces, and when; and its wrappers of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.distributions.utils import _lazy_property_and_property, lazy_property

from frameloom.capture.interpreter import calls
from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows, knows_kind
from frameloom.capture.library import interpreted
from frameloom.capture.library.torch_api.watched import Watched
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import boolean, is_none
from frameloom.capture.values.function import FunctionValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def interpret(t: Tracer, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    value = FunctionValue(function, t.roots.object(function))  # type: ignore[arg-type]
    return calls.inline(t, value, args, kwargs, resumable=False)


# The modules of the next two are slow to import; a program that calls them has imported them.


@knows_kind("associative_scan")
def _scan(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    if function.real.__module__ != "torch._higher_order_ops.associative_scan":
        return None
    return interpret(t, interpreted.scan, args, kwargs)


@knows_kind("map")
def _map(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    """PyTorch's `map` over the rows of tensors, row by row."""
    if function.real.__module__ != "torch._higher_order_ops.map":
        return None
    return _over_rows(t, "map", interpreted.map_rows, args, kwargs)


@knows_kind("scan")
def _scan_rows(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    """PyTorch's `scan`, step by step."""
    if function.real.__module__ != "torch._higher_order_ops.scan":
        return None
    return _over_rows(t, "scan", interpreted.scan_rows, args, kwargs)


@knows_kind("foreach_map")
def _foreach_map(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    """PyTorch's `foreach_map`, item by item. It takes lists of tensors out of the reach of gradients, and
    ignores keywords."""
    if function.real.__module__ != "torch._higher_order_ops.foreach_map":
        return None
    if torch.is_grad_enabled() and any(fake.requires_grad for fake in t.recorder.fakes):
        raise Break("library_call", "foreach_map(...) where gradients are recorded")
    return interpret(t, interpreted.foreach_map, args, {})


def _over_rows(
    t: Tracer, name: str, stand_in: Callable[..., Any], args: Args, kwargs: Kwargs
) -> Value:
    """These accept only functions that compute new tensors; PyTorch's own checks have other errors."""
    watched = Watched(t, [*args, *kwargs.values()])
    try:
        result = interpret(t, stand_in, args, kwargs)
    except Raised as raised:
        raise Break("library_call", f"{name}(...), which raises") from raised
    if watched.changed() is not None:
        raise Break("library_call", f"{name}(...) of a function with effects")
    return result


@knows(interpreted.count_tensors)
def _count_tensors(t: Tracer, args: Args, kwargs: Kwargs) -> int:
    return len(t.recorder.fakes)


@knows(interpreted.are_new, least=2, most=2)
def _are_new(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    """Breaks if one of the leaves is not a new tensor, made after the first `count` tensors."""
    count, leaves = t.look(args[0]).constant(), t.list_items(args[1])
    seen = {id(fake.memory) for fake in t.recorder.fakes[:count] if fake.memory is not None}
    for leaf in map(t.look, leaves):
        memory = leaf.fake.memory if isinstance(leaf, TensorValue) else None
        if memory is None or id(memory) in seen:
            raise Break("library_call", "a function over rows that returns what is no new tensor")
        seen.add(id(memory))


@knows_kind("expect_true")
def _expect_true(t: Tracer, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    if function.real.__module__ != "torch.fx.experimental.symbolic_shapes":
        return None
    return boolean(t.look(args[0]).truth(t))


# --- wrappers that PyTorch puts around functions: the function inside is called instead


def _inside(t: Tracer, wrapper: FunctionValue, variable: str) -> Value:
    """Returns the function that a wrapper holds in this variable."""
    names = wrapper.code.co_freevars
    if variable not in names:
        raise Break("library_call", f"{wrapper.name}(...), another wrapper than is known")
    return t.look(wrapper.closure(t)[names.index(variable)].content)


@knows_kind("_use_grad_for_differentiable.<locals>._use_grad")
def _step(t: Tracer, wrapper: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """An optimizer's step. The wrapper itself also imports PyTorch's compiler, to make it break its graph."""
    wrapped = _inside(t, wrapper, "func")
    return interpret(t, interpreted.step_with_gradients_as_asked, [wrapped, *args], kwargs)


@knows_kind("mark_compile_region.<locals>.wrap.<locals>.inner")
def _region(t: Tracer, wrapper: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """A function that PyTorch's own compiler compiles once for all its calls."""
    return t.call(_inside(t, wrapper, "func"), args, kwargs)


@knows_kind("_disable_dynamo.<locals>.inner")
def _excluded(t: Tracer, wrapper: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """A function that PyTorch excludes from its own compiler, such as `zero_grad`."""
    return t.call(_inside(t, wrapper, "fn"), args, kwargs)


@knows_kind("install_generation_tagging_init.<locals>.patched_init")
def _init(t: Tracer, wrapper: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """`Module.__init__` in a process that has used PyTorch's compiler, which notes there that a module is new.
    Only that compiler reads the note, to look at the module as if it had changed."""
    return t.call(_inside(t, wrapper, "init"), args, kwargs)


@knows_kind("install_generation_tagging_init.<locals>.patched_setstate")
def _setstate(t: Tracer, wrapper: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
    """`Module.__setstate__` in such a process."""
    return t.call(_inside(t, wrapper, "setstate"), args, kwargs)


# --- torch.distributions: attributes read from its classes and not from instances; its other code is interpreted


@knows(lazy_property.__get__, least=2, most=3)
def _lazy_property(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if is_none(t.look(args[1])):
        return t.pinned(_of_class(t.look(args[0]).real.wrapped))
    return interpret(t, lazy_property.__get__, args, kwargs)


@functools.cache
def _of_class(wrapped: Any) -> Any:
    """Returns the attribute of the class: only its type is ever used, so one object can serve all reads."""
    return _lazy_property_and_property(wrapped)
