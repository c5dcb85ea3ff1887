"""Infers results whose shape has a simple formula for symbolic sizes, and whose layout is that of the
captured call.

The meta kernel runs with the hints. If its result is a tensor without gaps in some order of the dimensions,
other sizes use the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch

from frameloom.capture.shapes.registry import (
    RULES,
    broadcast,
    infer,
    is_less,
    note_not_1,
    same_sizes,
    sized_rule,
    wrap_dim,
)
from frameloom.capture.tensors.sized import SizedMeta, dense_strides, empty_strided, strides_of
from frameloom.ir.symbolic.compare import equal, same
from frameloom.ir.symbolic.expr import Int, hint_of

aten = torch.ops.aten


def with_hint_layout(func: Any, args: Any, kwargs: Any, shapes: Sequence[Sequence[Int]]) -> Any:
    """Returns results of these shapes, with the dimension order that they have at the hints; None if that
    fails."""
    inferred = infer(func, _at_hints(args), _at_hints(kwargs))
    several = isinstance(inferred, tuple | list)
    results = []
    examples = inferred if several else [inferred]
    if len(examples) != len(shapes):
        return None
    for like, shape in zip(examples, shapes, strict=True):
        made = None if like is None else _like(like, shape)
        if like is not None and made is None:
            return None
        results.append(made)
    sized = [t for t in (*_sized_in(args), *results) if isinstance(t, SizedMeta)]
    plain = [same_sizes(t.stride(), strides_of(t.shape)) for t in sized]
    if not all(plain):
        for t, is_plain in zip(sized, plain, strict=True):
            note_not_1(t.shape, is_plain)
        for t in _sized_in(args):
            _keep_order(t)
    return tuple(results) if several else results[0]


def _keep_order(t: SizedMeta) -> None:
    """Adds guards that the order of its strides, and of sizes if strides are equal, is that of the captured
    call."""
    shape, strides = t.shape, t.stride()
    hints = [(hint_of(s), hint_of(n)) for s, n in zip(strides, shape, strict=True)]
    for d, e in pairwise(sorted(range(t.dim()), key=hints.__getitem__)):
        numbers = strides if not same(strides[d], strides[e]) else shape
        if not same(numbers[d], numbers[e]):
            less = is_less(numbers[d], numbers[e])
            if not less:
                is_less(numbers[e], numbers[d])


def _sized_in(value: Any) -> Iterator[SizedMeta]:
    if isinstance(value, SizedMeta):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _sized_in(part)


def _at_hints(value: Any) -> Any:
    if isinstance(value, SizedMeta):
        shape, strides = ([*map(hint_of, n)] for n in (value.shape, value.stride()))
        return empty_strided(shape, strides, value.dtype)
    if isinstance(value, list | tuple):
        return type(value)(map(_at_hints, value))
    if isinstance(value, dict):
        return {name: _at_hints(v) for name, v in value.items()}
    return hint_of(value)


def _like(example: torch.Tensor, shape: Sequence[Int]) -> torch.Tensor | None:
    """Returns a tensor of this shape with the dimension order of the example."""
    if tuple(example.shape) != tuple(map(hint_of, shape)):
        return None
    strides = example.stride()
    order = sorted(range(len(shape)), key=lambda d: (strides[d], example.shape[d], -d))
    dense = dense_strides(shape, order)
    if strides != tuple(map(hint_of, dense)):
        return None
    return empty_strided(shape, dense, example.dtype)


# --- rules


@sized_rule(
    aten.fill.Tensor, aten.bernoulli.p, aten.bernoulli.default, aten.roll.default, aten._safe_softmax.default,
)  # fmt: skip
def _as_first(func: Any, x: Any, *args: Any, **options: Any) -> Any:
    return with_hint_layout(func, (x, *args), options, [x.shape])


@sized_rule(aten.log_sigmoid_forward.default)
def _log_sigmoid(func: Any, x: Any) -> Any:
    return with_hint_layout(func, (x,), {}, [x.shape, x.shape])


@sized_rule(aten.glu.default)
def _glu(func: Any, x: Any, dim: int = -1) -> Any:
    if not x.dim() or x.shape[wrap_dim(dim, x.dim())] % 2 != 0:
        return None
    shape = list(x.shape)
    shape[dim] = shape[dim] // 2
    return with_hint_layout(func, (x, dim), {}, [shape])


@sized_rule(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(func: Any, x: Any, indices: Sequence[Any]) -> Any:
    at = [d for d, t in enumerate(indices) if t is not None]
    # By the operands that the kernel iterates over, if these are known.
    if (result := RULES[func](func, x, indices)) is not None:
        return result
    masks = (torch.bool, torch.uint8)
    if not at or any(indices[d].dtype in masks for d in at) or len(indices) > x.dim():
        return None
    chosen = broadcast(*(indices[d].shape for d in at))
    if chosen is None:
        return None
    rest = [n for d, n in enumerate(x.shape) if d not in at]
    # If the indexed dimensions are not neighbours, they come first.
    before = at[0] if at == list(range(at[0], at[-1] + 1)) else 0
    shape = [*rest[:before], *chosen, *rest[before:]]
    return with_hint_layout(func, (x, indices), {}, [shape])


@sized_rule(aten.cat.default)
def _cat(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    # Tensors with one dimension and no elements are left out, for any shape of the others.
    shapes = [t.shape for t in tensors if t.dim() != 1 or not same(t.shape[0], 0)]
    if not shapes or any(len(s) != len(shapes[0]) for s in shapes):
        return None
    d = wrap_dim(dim, len(shapes[0]))
    for s in shapes[1:]:
        if any(k != d and n != m for k, (n, m) in enumerate(zip(s, shapes[0], strict=True))):
            return None
    total: Int = 0
    for s in shapes:
        total = total + s[d]
    return with_hint_layout(
        func, (tensors, dim), {}, [[*shapes[0][:d], total, *shapes[0][d + 1 :]]]
    )


@sized_rule(aten.stack.default)
def _stack(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    first = tensors[0]
    stackable = all(
        len(t.shape) == len(first.shape)
        and all(a == b for a, b in zip(t.shape, first.shape, strict=True))
        and t.dtype is first.dtype
        for t in tensors
    )
    dim = wrap_dim(dim, first.dim() + 1)
    shape = [*first.shape[:dim], len(tensors), *first.shape[dim:]]
    return with_hint_layout(func, (tensors, dim), {}, [shape]) if stackable else None


@sized_rule(aten.new_empty_strided.default)
def _new_empty_strided(
    func: Any, x: Any, shape: Sequence[Int], strides: Sequence[Int], *, dtype: Any = None, **options: Any
) -> Any:  # fmt: skip
    return empty_strided(list(shape), list(strides), dtype or x.dtype)


@sized_rule(
    aten.binary_cross_entropy.default, aten.binary_cross_entropy_with_logits.default, aten.soft_margin_loss.default,
    aten.mse_loss.default, aten.smooth_l1_loss.default, aten.huber_loss.default,
)  # fmt: skip
def _elementwise_loss(func: Any, x: Any, target: Any, *args: Any) -> Any:
    names = [a.name for a in func._schema.arguments]
    given = dict(zip(names[2:], args, strict=False))
    shape = broadcast(x.shape, target.shape)
    if shape is None:
        return None
    return with_hint_layout(
        func, (x, target, *args), {}, [() if given.get("reduction", 1) else shape]
    )


@sized_rule(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def _nll_loss(
    func: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int
) -> Any:
    classes = 0 if x.dim() == 1 else 1
    wanted = (*x.shape[:classes], *x.shape[classes + 1 :])
    if len(wanted) != target.dim() or any(
        n != m for n, m in zip(wanted, target.shape, strict=True)
    ):
        return None
    if weight is not None and not (weight.dim() == 1 and equal(weight.shape[0], x.shape[classes])):
        return None
    shape = () if reduction else target.shape
    return with_hint_layout(func, (x, target, weight, reduction, ignore_index), {}, [shape, ()])


@sized_rule(
    aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.replication_pad1d.default, aten.replication_pad2d.default,
)  # fmt: skip
def _mirrored(func: Any, x: Any, pads: Sequence[Int]) -> Any:
    shape = list(x.shape)
    for k in range(len(pads) // 2):
        n = shape[-1 - k]
        if not all(p < n for p in pads[2 * k : 2 * k + 2]):
            return None
        shape[-1 - k] = n + pads[2 * k] + pads[2 * k + 1]
    return with_hint_layout(func, (x, pads), {}, [shape])


@sized_rule(
    aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit.no_stats
)
def _batch_norm_in_training(func: Any, x: Any, *args: Any) -> Any:
    count = 4 if func is aten._native_batch_norm_legit_functional.default else 2
    return with_hint_layout(func, (x, *args), {}, [x.shape, *[x.shape[1:2]] * count])


@sized_rule(aten.convolution.default)
def _convolution(
    func: Any, x: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    rank = x.dim() - 2
    if x.dim() != weight.dim() or rank < 1:
        return None
    if not transposed and x.shape[1] != weight.shape[1] * groups:
        raise RuntimeError("the weight is for another number of channels")
    shape = [x.shape[0], weight.shape[1] * groups if transposed else weight.shape[0]]
    for k in range(rank):
        s, p, d = (numbers[k % len(numbers)] for numbers in (stride, padding, dilation))
        n, reach = x.shape[2 + k], d * (weight.shape[2 + k] - 1)
        if transposed:
            shape.append((n - 1) * s - 2 * p + reach + output_padding[k % len(output_padding)] + 1)
        elif n + 2 * p - reach >= 1:
            shape.append((n + 2 * p - reach - 1) // s + 1)
        else:
            return None
    given = (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    return with_hint_layout(func, given, {}, [shape])
