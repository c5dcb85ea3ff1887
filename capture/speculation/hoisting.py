"""Hoists calls of functions that draw random numbers and compute an array with NumPy alone.

Examples are the masks of speech models. The arguments must be known. The call runs before the graph; the
tensor that `torch.tensor` makes of the array is an input of the graph.

In: a call of a Python function (`array_of`), and of `torch.tensor` (`tensor_of`). Out: values for both,
and `with_arrays`, which calls the program's functions before the compiled graph. The capture records the
layout of the tensor. If the layout differs, or anything raises, NumPy's generator is restored and the call
starts again as plain Python.

Any other use of the array breaks the graph inside the function, like everything that uses NumPy's arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.guards.source import Origin
from frameloom.capture.guards.thread_warnings import warnings_here
from frameloom.capture.recording.captured_graph import Layout
from frameloom.capture.speculation.numpy_functions import chains_in
from frameloom.capture.values.base import NotConstant, Value
from frameloom.capture.values.binding import bind
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.values.function import FunctionValue


class Call:
    """A call of the program's function, which new code makes before the graph."""

    def __init__(self, function: Any, args: list[Any], kwargs: dict[str, Any], site: Any) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.site = site
        self.sample: Any = None  # its result in the capture
        self.conversions: list[tuple[dict[str, Any], Layout]] = []

    def __call__(self) -> list[torch.Tensor]:
        array = self.function(*self.args, **self.kwargs)
        return [self._converted(array, how, layout) for how, layout in self.conversions]

    def _converted(self, array: Any, how: dict[str, Any], layout: Layout) -> torch.Tensor:
        tensor = torch.tensor(array, **how)
        if Layout.of(tensor) != layout:
            raise ValueError("the array is not laid out as it was")
        return tensor


class ArrayOrigin(Origin):
    """The source of a tensor that is made of an array."""

    __slots__ = ("call", "number")

    def __init__(self, call: Call, number: int) -> None:
        super().__init__("array", None, None)
        self.call = call
        self.number = number

    def path(self) -> str:
        return f"{self.call.function.__name__}(...)"


class HoistedArray(Value):
    """The value of the array that such a function returns."""

    def __init__(self, call: Call) -> None:
        self.of = call

    def type(self) -> type:
        return type(self.of.sample)

    def describe(self) -> str:
        return "ndarray"

    def check_rebuild(self) -> None:
        raise Avoid(self.of.site)


def array_of(
    t: Tracer, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """Returns the value of a call; None if the function must be interpreted."""
    real, numpy = function.real, sys.modules.get("numpy")
    if real is None or numpy is None or t.frame is None:
        return None
    chains = chains_in(real.__code__)
    if chains is None or t.draws or t.session.per_code:
        return None
    site = t.site
    if t.session.is_avoided(*site) or not _stand_for_numpy(t, function, chains, numpy):
        return None
    code, slots = real.__code__, bind(t, function, args, kwargs)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        plain = [t.look(slots[name]).constant() for name in names]
    except NotConstant:
        return None
    if len(slots) != len(names) or not all(map(_is_plain, plain)):
        return None
    t.guards.add(function._own(t).child("func_code"), "is", code)
    count = code.co_argcount
    keywords = dict(zip(names[count:], plain[count:], strict=True))
    made = Call(real, plain[:count], keywords, site)
    if not _try(made, numpy):
        return None
    t.arrays.append(made)
    t.speculation.rerun_sites.append(site)
    t.on_undo(t.arrays.pop)
    return HoistedArray(made)


def _stand_for_numpy(
    t: Tracer, function: FunctionValue, chains: Sequence[tuple[str, ...]], numpy: ModuleType
) -> bool:
    """Whether the names refer to NumPy and to builtins; adds guards for this."""
    table = function.globals(t)
    for name, *attributes in chains:
        value = table.get(t, ConstValue(name))
        if not attributes:
            if value is not None:
                return False
            continue
        if value is None or t.look(value).real is not numpy:
            return False
        for attribute in attributes:
            value = t.look(t.look(value).getattr(t, attribute))
    return True


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (int, float, bool, str)


def _try(call: Call, numpy: Any) -> bool:
    """Calls it to get a sample result; NumPy's generator is restored."""
    before = numpy.random.get_state()
    try:
        with warnings_here("error"):
            call.sample = call.function(*call.args, **call.kwargs)
    except Exception:
        return False
    finally:
        numpy.random.set_state(before)
    return type(call.sample) is numpy.ndarray


def tensor_of(t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Captures `torch.tensor(array)`; returns None if the argument is no such array."""
    array = t.look(args[0]) if len(args) == 1 else None
    if not isinstance(array, HoistedArray):
        return None
    how = {name: t.look(value).constant() for name, value in kwargs.items()}
    on_cpu = how.setdefault("device", "cpu") is None or torch.device(how["device"]).type == "cpu"
    if not how.keys() <= {"dtype", "device"} or not on_cpu or torch._C._len_torch_function_stack():
        raise Break("numpy", "torch.tensor(...) of an array")
    call = array.of
    sample = torch.tensor(call.sample, **how)
    origin = ArrayOrigin(call, len(call.conversions))
    call.conversions.append((how, Layout.of(sample)))
    t.on_undo(call.conversions.pop)
    fake = t.recorder.input(sample, origin)
    return t.torch_call(torch.clone, [TensorValue(fake, sample, origin)], {})


def with_arrays(
    compiled: Callable[..., Any], calls: Sequence[Call], inputs: Sequence[Origin]
) -> Callable[..., Any]:
    """Wraps the graph: makes the inputs that come from arrays; the caller passes the others."""
    random = sys.modules["numpy"].random
    places = [
        (position, calls.index(origin.call), origin.number)
        for position, origin in enumerate(inputs)
        if isinstance(origin, ArrayOrigin)
    ]

    def run(*given: Any) -> Any:
        before = random.get_state()
        try:
            made = [call() for call in calls]
        except Exception:
            random.set_state(before)
            raise _capture.RunPlainly from None
        every = list(given)
        for position, call, number in places:
            every.insert(position, made[call][number])
        try:
            return compiled(*every)
        except _capture.RunPlainly:
            random.set_state(before)
            raise

    return run
