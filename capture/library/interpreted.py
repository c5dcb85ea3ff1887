"""Python code that replaces functions of PyTorch, written to be interpreted like the program's own.

A stand-in does what the function documents, for the cases that its rule (`stand_ins.py`, `torch_api/`)
allows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


class FunctionContext:
    """The `ctx` of an autograd Function."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self._dirty: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._materializes = True

    def __getattr__(self, name: str) -> Any:
        return unknown_of_context(name)

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        pass

    def mark_dirty(self, *tensors: Any) -> None:
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self._materializes = value


def unknown_of_context(name: str) -> Any:
    """Breaks the graph, since other attributes of the context are unknown."""


def forward_of(cls: Any, has_setup: bool, needs: Any, args: Any, kwargs: Any) -> Any:
    """Returns context and result of `cls.apply(*args)`, before autograd processes the result; called without
    gradients."""
    context = FunctionContext(needs)
    if has_setup:
        result = cls.forward(*args, **kwargs)
        cls.setup_context(context, args, result)
    else:
        result = cls.forward(context, *args, **kwargs)
    return context, result


def backward_of(cls: Any, context: Any, gradients: Any) -> Any:
    return cls.backward(context, *gradients)


def apply_function(cls: Any, has_setup: bool, *args: Any, **kwargs: Any) -> Any:
    """Does `cls.apply(*args)` of an autograd Function if no gradient is needed."""
    with torch.no_grad():
        context, result = forward_of(cls, has_setup, (False,) * len(args), args, kwargs)
        if isinstance(result, torch.Tensor):
            return _as_output(result, args, context._dirty)
        if isinstance(result, tuple):
            return tuple([_as_output(part, args, context._dirty) for part in result])
        return result


def function_of(op: Any, setup: Any, backward: Any) -> type[torch.autograd.Function]:
    """Returns the Function that gives an operator of the program its derivative."""

    class Formula(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            return op(*args)

        @staticmethod
        def setup_context(context: Any, args: Any, result: Any) -> None:  # type: ignore[override]
            if setup is not None:
                setup(ctx=context, inputs=args, output=result)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            return backward(context, *gradients)

    Formula.__name__ = f"GeneratedBackwardFor_{str(op).replace('.', '_')}"
    return Formula


def _as_output(part: Any, args: tuple[Any, ...], dirty: tuple[Any, ...]) -> Any:
    """Returns an output of a Function: a view for an input that is returned unchanged; for a changed input
    the tensor itself, or a detached one if it has a history."""
    if not isinstance(part, torch.Tensor) or not any(part is a for a in args):
        return part
    if not any(part is d for d in dirty):
        return part.view_as(part)
    return part.detach() if part.requires_grad else part


def scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """Does `associative_scan`. It combines in PyTorch's order, which shows where `combine_fn` rounds, or is not
    associative."""
    leaves, spec = pytree.tree_flatten(xs)
    if combine_mode == "pointwise" and not all(leaf.is_cuda for leaf in leaves):
        raise ValueError(
            "For combine_mode='pointwise', all input tensors need to be on CUDA or XPU"
        )
    flip = functools.partial(torch.flip, dims=[0]) if reverse else _same

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        trees = [pytree.tree_unflatten(part, spec) for part in (left, right)]
        return pytree.tree_leaves(torch.vmap(combine_fn)(*trees))

    totals = _totals(combine, [flip(torch.movedim(leaf, dim, 0)) for leaf in leaves])
    results = [torch.movedim(flip(total), 0, dim) for total in totals]
    return pytree.tree_unflatten(results, spec)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _totals(combine: Callable[..., list[Any]], parts: list[Any]) -> list[Any]:
    """Returns the running totals of rows: those of neighbours first, from which the others follow."""
    length = parts[0].shape[0]
    if length < 2:
        return parts
    odd = _totals(combine, combine([x[:-1:2] for x in parts], [x[1::2] for x in parts]))
    even = [x[:1] for x in parts]
    if length > 2:
        before = odd if length % 2 else [x[:-1] for x in odd]
        later = combine(before, [x[2::2] for x in parts])
        even = [torch.cat(both) for both in zip(even, later, strict=True)]
    return [_alternating(*both) for both in zip(even, odd, strict=True)]


def _alternating(even: torch.Tensor, odd: torch.Tensor) -> torch.Tensor:
    """Returns the rows of both in turn; `even` may have one more."""
    count = odd.shape[0]
    both = torch.stack([even[:count], odd], 1).flatten(0, 1)
    return both if even.shape[0] == count else torch.cat([both, even[count:]])


def foreach_map(op: Callable[..., Any], *operands: Any) -> Any:
    """Does PyTorch's `foreach_map`: calls `op` with the items of the lists, and with what is no list again
    and again."""
    if not any(isinstance(operand, list | tuple) for operand in operands):
        return op(*operands)
    columns = [x if isinstance(x, list | tuple) else itertools.repeat(x) for x in operands]
    return [op(*items) for items in zip(*columns)]  # noqa: B905


def map_rows(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """Does PyTorch's `map`: stacks the results for all rows of the tensors in `xs`."""
    leaves, spec = pytree.tree_flatten(xs)
    rows = zip(*leaves, strict=True)
    columns: list[list[Any]] = []
    for row in rows:
        count = count_tensors()
        made, made_spec = pytree.tree_flatten(f(pytree.tree_unflatten(list(row), spec), *args))
        are_new(count, made)
        columns.append(made)
    return pytree.tree_unflatten(
        [torch.stack(column) for column in zip(*columns, strict=True)], made_spec
    )


def scan_rows(
    combine_fn: Callable[[Any, Any], Any],
    init: Any,
    xs: Any,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> Any:
    """Does PyTorch's `scan`: takes a state along a dimension, and stacks what each step returns beside it."""
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves:
        return init, []
    parts, state_spec = pytree.tree_flatten(init)
    if dim < 0:
        dim += leaves[0].ndim
    moved = [torch.movedim(leaf, dim, 0) for leaf in leaves]
    length = moved[0].shape[0]
    layouts = [(leaf.shape, leaf.dtype, leaf.device) for leaf in parts]
    columns: list[list[Any]] = []
    for i in range(length - 1, -1, -1) if reverse else range(length):
        count = count_tensors()
        row = pytree.tree_unflatten([leaf[i] for leaf in moved], spec)
        state, result = combine_fn(pytree.tree_unflatten(parts, state_spec), row)
        parts, new_spec = pytree.tree_flatten(state)
        made, made_spec = pytree.tree_flatten(result)
        are_new(count, parts + made)
        if new_spec != state_spec or layouts != [(c.shape, c.dtype, c.device) for c in parts]:
            raise ValueError("the state changes its form")
        columns.append(made)
    if reverse:
        columns.reverse()
    results = [torch.stack(column) for column in zip(*columns, strict=True)]
    results = [torch.movedim(r, 0, dim) if 0 < dim < r.ndim else r for r in results]
    return state, pytree.tree_unflatten(results, made_spec)


def count_tensors() -> int:
    """Returns the number of tensors that the capture knows."""
    return 0


def are_new(count: int, leaves: list[Any]) -> None:
    """Breaks the graph unless all leaves are tensors of their own, which the capture made since it knew `count`."""


class Unlabelled:
    """A `record_function` without effect."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def unlabelled() -> Any:
    """Replaces `record_function(name)`."""
    return Unlabelled()


def step_with_gradients_as_asked(step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Does `Optimizer.step` around `step`, its inner function."""
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(args[0].defaults["differentiable"])
        return step(*args, **kwargs)
    finally:
        torch.set_grad_enabled(before)


def graph_capture_matters(optimizer: Any) -> bool:
    """Whether the health check of an optimizer may raise or warn, because a CUDA graph is being recorded or
    not."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return True
    return not getattr(optimizer, "_warned_capturable_if_run_uncaptured", False)
