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

from frameloom.capture.shapes.iteration import note_not_1, same_sizes
from frameloom.capture.shapes.probe import with_numbers
from frameloom.capture.shapes.registry import infer, is_sized
from frameloom.capture.tensors.sized import SizedMeta, dense_strides, empty_strided, strides_of
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Int, hint_of
from frameloom.ir.symbolic.symint import is_less


def with_hint_layout(func: Any, args: Any, kwargs: Any, shapes: Sequence[Sequence[Int]]) -> Any:
    """Returns results of these shapes, with the dimension order that they have at the hints; None if that
    fails, or if all sizes are known."""
    if not is_sized(args):
        return None
    inferred = infer(func, *with_numbers((args, kwargs), hint_of))
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
