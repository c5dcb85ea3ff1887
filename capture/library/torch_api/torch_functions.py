"""PyTorch's functions that are not tensor operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack as get_modes,
)
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from frameloom.capture.guards.class_lookup import MISSING, class_attribute
from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Known, Kwargs, knows
from frameloom.capture.interpreter.dispatch.wrapper import WrapperValue
from frameloom.capture.shapes.iteration import is_dense
from frameloom.capture.speculation.assume import assume
from frameloom.capture.tensors.functionalize import is_inference
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import FALSE, ConstValue
from frameloom.capture.values.containers.container import ListValue
from frameloom.capture.values.numbers.size import size_value
from frameloom.capture.values.policy import TRANSFORMS
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break
from frameloom.ir.symbolic.compare import same

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


# --- torch


@knows(torch.Tensor.__iter__, least=1, most=1)
def _iter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.look(args[0]).iterate(t)


# These modules behave differently when compiled, so they get the answer no: optimizers compute with float32
# in place of Python's numbers, an encoder fills padding with values other than zero, hooks that are always
# called are not called if a module raises, and a transformed function does not get the name of the function.
NOT_INFORMED = ("torch.optim.", "torch.nn.modules.", "torch.nn.functional", TRANSFORMS[0])


def _is_compiling(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if str(t.frame.globals.real.get("__name__")).startswith(NOT_INFORMED):
        return FALSE
    return t.report_compiling()


for _name in ("is_compiling", "is_dynamo_compiling"):
    FUNCTIONS[getattr(torch.compiler, _name)] = _is_compiling


def _is_capturing(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Raises like PyTorch without that kind of device: there, the function that it calls is a class that
    cannot be called."""
    t.raise_unworded(RuntimeError, "is_current_stream_capturing()")


for _kind in ("cuda", "xpu"):
    if isinstance(getattr(torch._C, f"_{_kind}_isCurrentStreamCapturing", None), type):
        FUNCTIONS[getattr(torch, _kind).is_current_stream_capturing] = _is_capturing


@knows(torch.Tensor.is_inference, torch.is_inference, least=1, most=1)
def _is_inference(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    value = t.look(args[0])
    if not isinstance(value, TensorValue):
        raise Break("unknown_call", f"{value.describe()}.is_inference()")
    return is_inference(value.fake)


@knows(get_modes, least=0, most=0)
def _dispatch_modes(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Returns no modes: the guards on the global state check this."""
    return ListValue([])


@knows(is_traceable_wrapper_subclass, least=1, most=1)
def _is_wrapper_subclass(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    value = t.look(args[0])
    if not isinstance(value, TensorValue | ConstValue):
        raise Break("unknown_call", "is_traceable_wrapper_subclass(...)")
    cls = value.type()
    names = ("__tensor_flatten__", "__tensor_unflatten__")
    return isinstance(value, WrapperValue) and all(
        class_attribute(cls, name) is not MISSING for name in names
    )


@knows(torch._check_tensor_all_with, torch._check_tensor_all, least=1, most=3)
def _check_tensor_all(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    """Assumes that all elements are true. The first argument may be the class of the exception; the program
    raises it when it runs as plain Python."""
    condition = next((v for v in map(t.look, args) if isinstance(v, TensorValue)), None)
    broken = Break("data_dependent_branch", "torch._check_tensor_all(...)")
    if condition is None or condition.fake.dtype is not torch.bool:
        raise broken
    everywhere = t.torch_call(torch.all, [condition], {})
    assert isinstance(everywhere, TensorValue)
    assume(t, everywhere, True, broken)


@knows(torch._C._log_api_usage_once)
def _nothing(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    pass


@knows(torch.is_tensor, least=1, most=1)
def _is_tensor(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    return isinstance(t.look(args[0]), TensorValue)


@knows(torch.numel, least=1, most=1)
def _numel(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    if not isinstance(value, TensorValue):
        raise Break("unknown_call", "torch.numel(...)")
    return size_value(t, value.fake.numel())


@knows(torch.Size.numel, least=1, most=1)
def _size_numel(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    total = 1
    for item in t.items(t.look(args[0])):
        total *= t.index(item)
    return size_value(t, total)


@knows(torch.Tensor.storage_offset, least=1, most=1)
def _storage_offset(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Returns the offset in the storage. For a tensor from before the call, the start in its storage is not
    part of its check, and the fake counts from there; so a guard is added."""
    value = t.look(args[0])
    if not isinstance(value, TensorValue):
        raise Break("unknown_call", "Tensor.storage_offset(...)")
    offset, owner = value.fake.storage_offset(), t.recorder.memory_owner(value.fake)  # type: ignore[arg-type]
    if owner is not None:
        origin, real = owner
        t.guards.add(origin, "storage_offset", real.storage_offset())
        # A view may have elements of another size.
        offset += real.storage_offset() * real.element_size() // value.fake.dtype.itemsize
    return size_value(t, offset)


def _as_strided(fn: Any, position: int) -> Known:
    """Returns the rule. `position`: index of the offset among its arguments."""

    def call(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """Breaks unless an earlier tensor starts at the start of its storage: a given offset counts from
        there, and the fake counts from the tensor's start."""
        value = t.look(args[0])
        given = args[position] if len(args) > position else kwargs.get("storage_offset")
        if isinstance(value, TensorValue) and given is not None:
            owner = t.recorder.memory_owner(value.fake)  # type: ignore[arg-type]
            if owner is not None:
                origin, real = owner
                if real.storage_offset() != 0:
                    raise Break("data_pointer", f"{fn.__name__}(...) of a part of a tensor")
                t.guards.add(origin, "storage_offset", 0)
        return t.torch_call(fn, args, kwargs)

    return call


def _in_place_of(fn: Any) -> Known:
    """Returns the rule for a function whose result has the first argument's offset in its storage, and also
    the data between its elements. Results of graphs have the offset 0, and no data between elements, so
    other cases break."""

    def call(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        value = t.look(args[0]) if args else None
        if isinstance(value, TensorValue):
            owner = t.recorder.memory_owner(value.fake)  # type: ignore[arg-type]
            starts = owner is None or owner[1].storage_offset() == 0
            if not starts or not same(value.fake.storage_offset(), 0):
                raise Break("data_pointer", f"{fn.__name__}(...) of a part of a tensor")
            if not is_dense(value.fake):
                raise Break("data_pointer", f"{fn.__name__}(...) of a tensor with gaps")
            if owner is not None:
                t.guards.add(owner[0], "storage_offset", 0)
        return t.torch_call(fn, args, kwargs)

    return call


def _of_wider_elements(fn: Any) -> Known:
    """PyTorch refuses a view with wider elements if it does not start at a multiple of their width, counted
    from the start of the storage; a guard checks this."""

    def call(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        value = t.look(args[0])
        if not isinstance(value, TensorValue):
            return t.torch_call(fn, args, kwargs)
        given = t.look(args[1] if len(args) > 1 else kwargs.get("dtype", args[0]))
        size = value.fake.dtype.itemsize
        wanted = size if fn is torch.Tensor.view else 2 * size
        if given.type() is torch.dtype:  # otherwise a size, whose value is not read
            wanted = given.constant().itemsize
        owner = t.recorder.memory_owner(value.fake)  # type: ignore[arg-type]
        if owner is not None and wanted > size:
            origin, real = owner
            many = max(1, wanted // real.dtype.itemsize)
            if real.storage_offset() % many:
                raise Break("data_pointer", f"{fn.__name__}(...) of a part of a tensor")
            t.guards.add(origin, "storage_offset_multiple", many)
        return t.torch_call(fn, args, kwargs)

    return call


for _fn in (torch.Tensor.view, torch.view_as_complex):
    FUNCTIONS[_fn] = _of_wider_elements(_fn)
for _fn in (torch.as_strided, torch.Tensor.as_strided):
    FUNCTIONS[_fn] = _as_strided(_fn, 3)
for _name in ("as_strided_scatter", "diagonal_scatter", "select_scatter", "slice_scatter"):
    for _fn in (getattr(torch, _name), getattr(torch.Tensor, _name)):
        FUNCTIONS[_fn] = _in_place_of(_fn)
