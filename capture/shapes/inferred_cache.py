"""Cache of the results that were inferred for an op: a model of equal layers asks the same questions in each
layer.

An answer is valid as long as the assumptions hold that were known when it was inferred. Assumptions are only
added, unless they are taken back (symbolic/shape_env.py), which clears the cache, too. Layout assumptions
that an answer makes (that a size is not 0 or 1) are repeated at each look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from frameloom.capture.tensors.sized import SizedMeta
from frameloom.ir.symbolic.call_layouts import AssumedSizes
from frameloom.ir.symbolic.expr import Size
from frameloom.ir.symbolic.shape_env import ShapeEnv

PLAIN = frozenset({
    int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, Size,
})  # fmt: skip


class _Uncacheable(Exception):
    """An argument that has no key."""


@dataclass(frozen=True, slots=True)
class Answer:
    result: Any
    assumed_sizes: AssumedSizes


def inferred(
    infer: Callable[[Any, Any, Any], Any], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Returns `infer(func, args, kwargs)`, if sizes are among the arguments."""
    shape_env = _shape_env_of((*args, *kwargs.values()))
    if shape_env is None or shape_env.has_unbacked or shape_env.relaxed:
        return infer(func, args, kwargs)
    try:
        names = [(name, _token(a)) for name, a in kwargs.items()]
        key = (func, *map(_token, args), *names, torch.get_default_dtype())
    except _Uncacheable:
        return infer(func, args, kwargs)
    known: Answer | None = shape_env.inferred.get(key)
    if known is None:
        before, shape_env.assumed_sizes = shape_env.assumed_sizes, AssumedSizes()
        try:
            result = infer(func, args, kwargs)
        finally:
            own, shape_env.assumed_sizes = shape_env.assumed_sizes, before
            shape_env.assumed_sizes.add(own)
        if any(result is a for a in args):
            return result
        shape_env.inferred[key] = Answer(result, own)
        return result
    shape_env.assumed_sizes.add(known.assumed_sizes)
    return known.result


def _shape_env_of(values: Iterable[Any]) -> ShapeEnv | None:
    for a in values:
        if isinstance(a, Size):
            return a.shape_env
        if isinstance(a, SizedMeta):
            shape_env = _shape_env_of((*a.own_shape, *a.own_strides, a.own_offset))
        else:
            shape_env = _shape_env_of(a) if isinstance(a, list | tuple) else None
        if shape_env is not None:
            return shape_env
    return None


def _token(a: Any) -> Any:
    cls = type(a)
    if cls is SizedMeta:
        return (a.own_shape, a.own_strides, a.own_offset, a.dtype)
    if cls is torch.Tensor:
        if a.is_conj() or a.is_neg():
            raise _Uncacheable
        return (a.shape, a.stride(), a.storage_offset(), a.dtype)
    if cls in PLAIN:
        return (cls, a)
    if cls is float:
        return a.hex()
    if isinstance(a, list | tuple):
        return tuple(map(_token, a))
    raise _Uncacheable
