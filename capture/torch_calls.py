"""Calls of torch functions in the program: recorded, with what the call has to be told of later."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from frameloom.capture.assumptions import assumed, is_caught, may_be_caught, may_fail
from frameloom.capture.attention_masks import with_causality
from frameloom.capture.late_sizes import found_at
from frameloom.capture.number_inputs import has_symbols, without_symbols
from frameloom.capture.outside import tensor_of
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue, is_none
from frameloom.capture.values.symbolic import is_unsettled
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.tracer import Tracer

AS_TENSOR = (torch.tensor, torch.as_tensor)


def torch_call(
    t: Tracer, fn: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Record a call of a torch function."""
    if t.trying:
        raise Break("too_large", "a question that computes with tensors")
    known, facts = len(t.settled_numbers), t.recorder.facts
    assumed = facts.mark()
    try:
        return _recorded(t, fn, args, kwargs)
    except Break:
        # Plain Python takes the call, whatever its numbers are.
        while len(t.settled_numbers) > known:
            t.settled_numbers.pop().unsettle()
        facts.take_back(assumed)
        raise


def _recorded(
    t: Tracer,
    fn: Callable[..., Any],
    args: list[Value],
    kwargs: dict[str, Value],
    settle: bool = False,
) -> Value:
    if fn is F.scaled_dot_product_attention:
        args, kwargs = with_causality(t, args, kwargs)
    made = _number_as_tensor(t, args, kwargs) if fn in AS_TENSOR else None
    if fn is torch.tensor and made is None:
        made = tensor_of(t, args, kwargs)
    if made is not None:
        return made
    plain_args = tuple(t.to_torch(a, fn) for a in args)
    plain_kwargs = {name: t.to_torch(a, fn) for name, a in kwargs.items()}
    if settle:
        plain_args = tuple(map(without_symbols, plain_args))
        plain_kwargs = {name: without_symbols(a) for name, a in plain_kwargs.items()}
    t.count_torch_call()
    mark = t.mark()
    t.on_undo(functools.partial(t.recorder.restore, t.recorder.snapshot()))
    last, n_late = next(iter(reversed(t.recorder.graph.nodes))), len(t.recorder.late)
    try:
        result = t.recorder.call(fn, plain_args, plain_kwargs, t.where())
    except Break:
        if settle or not has_symbols((*plain_args, *plain_kwargs.values())):
            raise
        # Perhaps it has to know the number: then once more with that.
        t.take_back(mark)
        return _recorded(t, fn, args, kwargs, settle=True)
    for tells in t.recorder.relies_on:
        t.guards.returns(tells, (), tells())
    if late := t.recorder.late[n_late:]:
        found_at(t, late, f"{getattr(fn, '__name__', fn)}(...)")
    if t.recorder.assumes:
        assumed(t, f"{getattr(fn, '__name__', fn)}(...)")
    elif is_caught(t.frame) and may_fail(last):
        may_be_caught(t, f"{getattr(fn, '__name__', fn)}(...)")
    return t.from_python(result)


def _number_as_tensor(t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`torch.tensor(number)` as an op."""
    number = t.look(args[0]) if args else ConstValue(None)
    if len(args) > 1 or not is_unsettled(number) or not kwargs.keys() <= {"dtype", "device"}:
        return None
    default = torch.get_default_dtype() if number.type() is float else torch.int64
    dtype = t.look(kwargs.get("dtype", ConstValue(None)))
    if is_none(dtype):
        dtype = ConstValue(default)
    return torch_call(t, torch.scalar_tensor, [number], {**kwargs, "dtype": dtype})
