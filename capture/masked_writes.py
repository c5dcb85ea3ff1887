"""`x[mask] = value` where gradients are needed: written as a choice for each element, whose derivative does not depend on how many ones the
mask has."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.fake import Fake
from frameloom.ir.size import equal

if TYPE_CHECKING:
    from frameloom.capture.record import Recorder


def record_setitem(recorder: Recorder, x: Any, key: Any, value: Any) -> Any:
    chosen = recorder.is_followed and _is_a_choice(x, key, value)
    return recorder.run(_choose if chosen else operator.setitem, (x, key, value), {})


def _is_a_choice(x: Any, mask: Any, value: Any) -> bool:
    """Whether all places that the mask selects are given the same."""
    if not all(isinstance(a, Fake) for a in (x, mask, value)) or mask.dtype is not torch.bool:
        return False
    rank = mask.dim()
    if not 0 < rank <= x.dim() or value.dim() > x.dim() - rank:
        return False
    if x.dtype != value.dtype or len({a.device for a in (x, mask, value)}) > 1:
        return False
    if x.memory is value.memory or x.memory is mask.memory:
        return False
    inner = x.shape[x.dim() - value.dim() :]
    return all(map(equal, mask.shape, x.shape)) and all(
        equal(n, 1) or equal(n, m) for n, m in zip(value.shape, inner, strict=True)
    )


def _choose(x: torch.Tensor, mask: torch.Tensor, value: torch.Tensor) -> None:
    for _ in range(x.dim() - mask.dim()):
        mask = mask.unsqueeze(-1)
    x.copy_(torch.where(mask, value, x))
