"""Records the program's calls of torch functions, and notes what later steps need to know about each call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from frameloom.capture.autograd.hooked_tensors import check_not_hooked, note_site
from frameloom.capture.interpreter.dispatch.torch_dispatch import dispatched
from frameloom.capture.recording.attention_masks import with_causality
from frameloom.capture.recording.dead_calls import site_of
from frameloom.capture.recording.unbacked_sizes import note_size_site, refuses
from frameloom.capture.speculation.assume import assumed, may_fail, note_fallible
from frameloom.capture.speculation.exception_paths import is_caught
from frameloom.capture.speculation.hoisting import tensor_of
from frameloom.capture.symbolic.number_inputs import has_symbols, without_symbols
from frameloom.capture.tensors.leaves import check_given_leaves
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue, is_none
from frameloom.capture.values.containers.container import ListValue, TupleValue
from frameloom.capture.values.numbers.size import SymbolicSize
from frameloom.capture.values.numbers.symbolic import is_symbolic
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

AS_TENSOR = (torch.tensor, torch.as_tensor)
MOST = 32  # numbers of a list that become ops, at most


def torch_call(
    t: Tracer, fn: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Records a call of a torch function."""
    if t.trying:
        raise Break("too_large", "a question that computes with tensors")
    if (answer := t.overridden(fn, args, kwargs)) is not None:
        return answer
    if (answer := dispatched(t, fn, args, kwargs)) is not None:
        return answer
    known, shape_env = len(t.specialized_numbers), t.recorder.shape_env
    assumed = shape_env.mark()
    try:
        return _recorded(t, fn, args, kwargs)
    except Break:
        # Plain Python runs the call, so its numbers need not be specialized.
        while len(t.specialized_numbers) > known:
            t.specialized_numbers.pop().unspecialize()
        shape_env.take_back(assumed)
        raise


def _recorded(
    t: Tracer,
    fn: Callable[..., Any],
    args: list[Value],
    kwargs: dict[str, Value],
    specialize: bool = False,
) -> Value:
    check_not_hooked(t)
    t.recorder.current_call.site = site_of(*t.site)
    if t.session.is_avoided(*t.recorder.current_call.site):
        raise Break("op_error", f"{getattr(fn, '__name__', fn)}(...)")
    if is_caught(t.frame):
        t.speculation.handled_sites.add(t.recorder.current_call.site)
    if fn is F.scaled_dot_product_attention:
        args, kwargs = with_causality(t, args, kwargs)
    made = _number_as_tensor(t, args, kwargs) if fn in AS_TENSOR else None
    if fn is torch.tensor and made is None:
        made = tensor_of(t, args, kwargs)
    if made is not None:
        return made
    plain_args = tuple(t.to_torch(a, fn) for a in args)
    plain_kwargs = {name: t.to_torch(a, fn) for name, a in kwargs.items()}
    if specialize:
        plain_args = tuple(map(without_symbols, plain_args))
        plain_kwargs = {name: without_symbols(a) for name, a in plain_kwargs.items()}
    t.count_torch_call()
    mark = t.mark()
    snapshot, n_unbacked = t.recorder.snapshot(), len(t.recorder.from_data.unbacked)
    t.on_undo(functools.partial(t.recorder.restore, snapshot))
    t.recorder.current_call.refuses_unbacked = refuses(t)
    try:
        result = t.recorder.call(fn, plain_args, plain_kwargs, t.where())
    except Break:
        if specialize or not has_symbols((*plain_args, *plain_kwargs.values())):
            raise
        # The function may need the numbers themselves: try again with specialized numbers.
        t.take_back(mark)
        return _recorded(t, fn, args, kwargs, specialize=True)
    finally:
        t.recorder.current_call.refuses_unbacked = False
    note_site(t, result)
    if not torch.is_grad_enabled():
        check_given_leaves(t, result)
    for query in t.recorder.current_call.relies_on:
        t.guards.returns(query, (), query())
    if unbacked := t.recorder.from_data.unbacked[n_unbacked:]:
        note_size_site(t, unbacked)
    if t.recorder.current_call.assumes:
        assumed(t, f"{getattr(fn, '__name__', fn)}(...)")
    elif may_fail(snapshot[0]):
        note_fallible(t, f"{getattr(fn, '__name__', fn)}(...)")
    return t.from_python(result)


def _number_as_tensor(t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Records `torch.tensor` of a dynamic number as one op, and of a list with such numbers as several ops.
    Returns None for other arguments."""
    number = t.look(args[0]) if args else ConstValue(None)
    if isinstance(number, ListValue | TupleValue) and len(args) == 1:
        return _numbers_as_tensor(t, number, kwargs)
    if len(args) > 1 or not is_symbolic(number) or not kwargs.keys() <= {"dtype", "device"}:
        return None
    default = torch.get_default_dtype() if number.type() is float else torch.int64
    dtype = t.look(kwargs.get("dtype", ConstValue(None)))
    if is_none(dtype):
        dtype = ConstValue(default)
    return torch_call(t, torch.scalar_tensor, [number], {**kwargs, "dtype": dtype})


def _numbers_as_tensor(t: Tracer, rows: Value, kwargs: dict[str, Value]) -> Value | None:
    leaves: list[Value] = []
    shape = _shape_of(t, rows, leaves)
    varies = len(leaves) <= MOST and any(map(is_symbolic, leaves))
    if shape is None or not varies or not kwargs.keys() <= {"dtype", "device"}:
        return None
    has_floats = any(leaf.type() is float for leaf in leaves)
    dtype = t.look(kwargs.get("dtype", ConstValue(None)))
    if is_none(dtype):
        dtype = ConstValue(torch.get_default_dtype() if has_floats else torch.int64)
    wanted = dtype.constant()
    if not wanted.is_floating_point and (has_floats or wanted is not torch.int64):
        return None
    if wanted.is_floating_point:  # Python rounds a large int
        leaves = [t.evaluate(float, [a], {}) if _may_be_large(a) else a for a in leaves]
    options = {**kwargs, "dtype": dtype}
    each = [torch_call(t, torch.scalar_tensor, [leaf], options) for leaf in leaves]
    row = torch_call(t, torch.stack, [ListValue(each)], {})
    if len(shape) == 1:
        return row
    return torch_call(t, torch.Tensor.reshape, [row, *map(ConstValue, shape)], {})


def _may_be_large(leaf: Value) -> bool:
    return leaf.type() is int and is_symbolic(leaf) and not isinstance(leaf, SymbolicSize)


def _shape_of(t: Tracer, rows: Value, leaves: list[Value]) -> tuple[int, ...] | None:
    """Returns the sizes of nested lists of ints and floats and appends the numbers to `leaves`; None for
    anything else."""
    if not isinstance(rows, ListValue | TupleValue):
        leaves.append(rows)
        is_number = isinstance(rows, ConstValue) and rows.type() in (int, float)
        return () if is_number else None
    if rows.type() not in (list, tuple, torch.Size) or not rows.items:
        return None
    shapes = {_shape_of(t, t.look(item), leaves) for item in rows.items}
    (shape,) = shapes if len(shapes) == 1 else (None,)
    return None if shape is None else (len(rows.items), *shape)
