"""The user's marks on sizes of a tensor: `mark_dynamic` and `mark_static`. They are advice: where code needs
a size, it is specialized all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

ATTRIBUTE = "_frameloom_sizes"


@dataclass
class Marks:
    """Marked dimensions of one tensor: least and greatest size of the dynamic ones, and the static ones."""

    dynamic: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    static: set[int] = field(default_factory=set)


def mark_dynamic(
    tensor: torch.Tensor,
    dim: int | Sequence[int],
    *,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Marks sizes of `tensor` along `dim` (one dimension or several; negative ones count from the end) as
    dynamic, from `min` to `max` (both included). A jitted function that gets the tensor compiles for all of
    them at once.

    Raises TypeError for anything but a tensor, IndexError for a dimension that it does not have, ValueError
    for a `min` above `max`."""
    least, most = min, max
    if least is not None and most is not None and least > most:
        raise ValueError(f"min={least} is greater than max={most}")
    marks = _marks(tensor)
    for d in _dimensions(tensor, dim):
        marks.static.discard(d)
        marks.dynamic[d] = (least, most)


def mark_static(tensor: torch.Tensor, dim: int | Sequence[int] | None = None) -> None:
    """Marks sizes of `tensor` along `dim` (None: every dimension) as static: each size gets an entry of its
    own, however often it changes.

    Raises TypeError for anything but a tensor, IndexError for a dimension that it does not have."""
    marks = _marks(tensor)
    for d in range(tensor.dim()) if dim is None else _dimensions(tensor, dim):
        marks.dynamic.pop(d, None)
        marks.static.add(d)


def marks_of(tensor: torch.Tensor) -> Marks | None:
    marks: Marks | None = getattr(tensor, ATTRIBUTE, None)
    return marks


def _marks(tensor: torch.Tensor) -> Marks:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a tensor, not {type(tensor).__name__}")
    marks = marks_of(tensor)
    if marks is None:
        marks = Marks()
        setattr(tensor, ATTRIBUTE, marks)
    return marks


def _dimensions(tensor: torch.Tensor, dim: int | Sequence[int]) -> list[int]:
    chosen = [dim] if isinstance(dim, int) else list(dim)
    rank = tensor.dim()
    for d in chosen:
        if not -rank <= d < rank:
            raise IndexError(f"dimension {d} of a tensor that has {rank}")
    return [d % rank for d in chosen]
