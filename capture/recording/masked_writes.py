"""Records `x[mask] = value` and `index_put` where gradients are needed.

Where all selected positions get the same value, the write is an elementwise choice, whose derivative does not
depend on the number of ones in the mask. Otherwise the forward pass computes the indices, so that the
backward pass need not do it."""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.tensors.fake import Fake
from frameloom.ir.symbolic.compare import equal

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder


INDICES = (torch.int64, torch.int32)


def record_setitem(recorder: Recorder, x: Any, key: Any, value: Any) -> Any:
    if recorder.current_call.is_followed and _is_a_choice(x, key, value):
        return recorder.run(_choose, (x, key, value), {})
    places = partial(_set_places, recorder, operator.setitem)
    keys = key if isinstance(key, tuple) else (key,)
    chosen = recorder.current_call.is_followed and _has_masks_that_fit(x, keys)
    return recorder.run(places if chosen else operator.setitem, (x, key, value), {})


def record_index_put(fn: Any) -> Any:
    def record(recorder: Recorder, x: Any, indices: Any, values: Any, accumulate: Any = False) -> Any:  # fmt: skip
        chosen = recorder.current_call.is_followed and _has_masks_that_fit(x, indices)
        return recorder.run(
            partial(_set_places, recorder, fn) if chosen else fn,
            (x, indices, values, accumulate),
            {},
        )

    return record


def _has_masks_that_fit(x: Any, keys: Any) -> bool:
    """Whether the keys contain masks and all masks fit. PyTorch refuses a mask whose shape differs from the
    dimensions that it selects from."""
    if Ellipsis in map(type, keys) or not isinstance(x, Fake):
        return False
    at, has_mask = 0, False
    for key in keys:
        if key is None and not isinstance(keys, tuple):
            at += 1  # None in a list of indices stands for a whole dimension
        elif isinstance(key, Fake) and key.dtype is torch.bool:
            rank = key.dim()
            if not rank or at + rank > x.dim():
                return False
            if not all(map(equal, key.shape, x.shape[at : at + rank])):
                return False
            at, has_mask = at + rank, True
        elif type(key) in (slice, int) or (isinstance(key, Fake) and key.dtype in INDICES):
            at += 1
        else:
            return False
    return has_mask


def _set_places(recorder: Recorder, fn: Any, x: torch.Tensor, keys: Any, *rest: Any) -> Any:
    new_keys: list[Any] = []
    for key in keys if isinstance(keys, tuple | list) else (keys,):
        if isinstance(key, Fake) and key.dtype is torch.bool:
            places: Any = key.nonzero(as_tuple=True)
            # In eager, autograd saves the mask itself, and notices a change of it.
            recorder.history.instead[places[0].memory] = key.memory, key.memory.version
            new_keys += places
        else:
            new_keys.append(key)
    return fn(x, tuple(new_keys), *rest)


def _is_a_choice(x: Any, mask: Any, value: Any) -> bool:
    """Whether all positions that the mask selects get the same value."""
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
