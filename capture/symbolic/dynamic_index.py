"""Reads and writes with dynamic ints as indices or steps. PyTorch's own indexing specializes them; a view
does not."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.values.base import Value
from frameloom.capture.values.containers.container import SliceValue, TupleValue
from frameloom.capture.values.numbers.number import NumberValue
from frameloom.capture.values.numbers.symbolic import is_symbolic
from frameloom.ir.symbolic.expr import Size

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def getter(t: Tracer, key: Value) -> Any:
    """Returns the function to record for `x[key]`."""
    return by_views if _has_ints(t, key) else operator.getitem


def setter(t: Tracer, key: Value) -> Any:
    """Returns the function to record for `x[key] = value`."""
    return set_by_views if _has_ints(t, key) else operator.setitem


def _has_ints(t: Tracer, key: Value) -> bool:
    items = key.items if isinstance(key, TupleValue) else [key]
    looked = map(t.look, items)
    return any(_varies(t.look(v.bounds[2]) if isinstance(v, SliceValue) else v) for v in looked)


def _varies(value: Value) -> bool:
    return is_symbolic(value) or (isinstance(value, NumberValue) and value.cls is int)


def by_views(x: torch.Tensor, key: Any) -> torch.Tensor:
    """Does `x[key]` with a view for each dynamic int."""
    x, rest = _selected(x, key)
    whole = all(i is Ellipsis or (isinstance(i, slice) and i == slice(None)) for i in rest)
    return x if whole else operator.getitem(x, tuple(rest))


def set_by_views(x: torch.Tensor, key: Any, value: Any) -> None:
    x, rest = _selected(x, key)
    # A call of PyTorch's function, so that its errors are not taken as ours.
    operator.setitem(x, tuple(rest) if rest else ..., value)


def _selected(x: torch.Tensor, key: Any) -> tuple[torch.Tensor, list[Any]]:
    """Returns the view that the ints and steps select, and the rest of the key."""
    items = list(key) if isinstance(key, tuple) else [key]
    hidden = x.dim() - sum(map(_dimensions, items))  # the dimensions of an ellipsis
    rest: list[Any] = []
    at = 0
    for item in items:
        if isinstance(item, Size):
            x = x.select(at, item)
            continue
        if item is None:  # the position of a new dimension shows in its stride
            x = x.unsqueeze(at)
            rest.append(slice(None))
            at += 1
            continue
        if isinstance(item, slice) and isinstance(item.step, Size):
            x = torch.ops.aten.slice.Tensor(x, at, item.start, item.stop, item.step)
            item = slice(None)
        rest.append(item)
        at += hidden if item is Ellipsis else _dimensions(item)
    return x, rest


def _dimensions(item: Any) -> int:
    """Returns how many dimensions an item of a key covers."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.dim()
    return 1
