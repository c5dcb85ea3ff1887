"""Functions around an optimizer's step: `record_function`, checks, fused kernels."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.library import interpreted, interpreted_steps
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import FALSE, NONE, TRUE, ConstValue, is_none
from frameloom.capture.values.containers.container import ListValue, TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


@knows(torch.autograd.profiler.record_function, least=1, most=2, keywords="args name")
def _record_function(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Drops a label for profilers, which do not see inside compiled code."""
    return interpret(t, interpreted.unlabelled, [], {})


@knows(torch._C._group_tensors_by_device_and_dtype, least=1, most=2, keywords="with_indices")
def _group(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Groups lists of tensors by device and dtype of the tensors in the first list: (device, dtype) ->
    (lists, positions)."""
    lists = [t.list_items(items) for items in t.list_items(args[0])]
    wanted = kwargs.get("with_indices", args[1] if len(args) > 1 else FALSE)
    numbered = t.look(wanted).truth(t)
    groups: dict[Any, tuple[list[list[Value]], list[Value]]] = {}
    for k, first in enumerate(map(t.look, lists[0])):
        if not isinstance(first, TensorValue):
            raise Break("library_call", "a list of tensors that are to be grouped has others")
        fact = first.fake.device, first.fake.dtype
        theirs, positions = groups.setdefault(fact, ([[] for _ in lists], []))
        for own, items in zip(theirs, lists, strict=True):
            if items:
                _check_grouped(fact, t.look(items[k]))
                own.append(items[k])
        if numbered:
            positions.append(ConstValue(k))
    result = DictValue()
    for fact, (theirs, positions) in groups.items():
        key = t.from_python(fact)
        value = TupleValue([ListValue([ListValue(own) for own in theirs]), ListValue(positions)])
        result.setitem(t, key, value)
    return result


def _check_grouped(fact: tuple[torch.device, torch.dtype], other: Value) -> None:
    """Breaks unless the tensors of one group are on one device, as PyTorch requires; counts of steps may be
    on the CPU."""
    if is_none(other):
        return
    own = isinstance(other, TensorValue) and (other.fake.device, other.fake.dtype)
    if own and own != fact:
        device, dtype = own
        counts = dtype in (torch.float32, torch.float64)
        own = counts and (device == fact[0] or device.type == "cpu")
    if not own:
        raise Break("library_call", "tensors of one place in lists that cannot be grouped")


SCALES = ("grad_scale", "found_inf")


def _fused(function: Any, on_cpu: Any, on_gpu: Any, *first: Value) -> None:
    """Registers the rule for a fused kernel, which updates all tensors at once: it is captured as ops on each
    tensor."""

    def called(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        scaled = any(not is_none(t.look(kwargs.get(name, NONE))) for name in SCALES)
        tensors = [t.look(item) for given in args for item in t.list_items(given)]
        fakes = [a.fake for a in tensors if isinstance(a, TensorValue)]
        devices = {fake.device for fake in fakes}
        lr = t.look(kwargs.get("lr", NONE))
        if scaled or len(fakes) < len(tensors) or len(devices) != 1:
            return t.torch_call(function, args, kwargs)
        (device,) = devices
        if device.type == "cuda":
            plain = all(fake.dtype.is_floating_point for fake in fakes)
            plain = plain and (not isinstance(lr, TensorValue) or lr.fake.device == device)
        else:
            # For other dtypes, the kernels do not round intermediate results.
            plain = all(fake.dtype in (torch.float32, torch.float64) for fake in fakes)
            plain = plain and device.type == "cpu" and not isinstance(lr, TensorValue)
        if not plain:
            return t.torch_call(function, args, kwargs)
        stand_in = on_gpu if device.type == "cuda" else on_cpu
        options = {name: value for name, value in kwargs.items() if name not in SCALES}
        return interpret(t, stand_in, [*first, *args], options)

    knows(function, least=3, most=6, keywords="*")(called)


_ADAM = interpreted_steps.fused_adam, interpreted_steps.fused_adam_on_gpu
_fused(torch._fused_adam_, *_ADAM, FALSE)
_fused(torch._fused_adamw_, *_ADAM, TRUE)
_fused(torch._fused_sgd_, interpreted_steps.fused_sgd, interpreted_steps.fused_sgd_on_gpu)
_fused(
    torch._fused_adagrad_, interpreted_steps.fused_adagrad, interpreted_steps.fused_adagrad_on_gpu
)


def _health_check(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Checks whether a step may be recorded into a CUDA graph; PyTorch's own check queries the accelerator at
    every step."""
    if t.look(interpret(t, interpreted.graph_capture_matters, args, kwargs)).truth(t):
        raise Break("library_call", "optimizer.step() while a CUDA graph is recorded")
    return NONE


for _name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
    if isinstance(_check := vars(torch.optim.Optimizer).get(_name), FunctionType):
        knows(_check, least=1, most=1)(_health_check)
        break


@knows(inspect.unwrap(torch.optim.LBFGS.step), least=1, most=2, keywords="closure")
def _lbfgs(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Breaks, since data decides each iteration of its loop."""
    raise Break("library_call", "LBFGS.step(...), which looks at data all the time")
