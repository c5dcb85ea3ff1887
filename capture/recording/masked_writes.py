"""Records `x[mask] = value`, `index_put` and `masked_scatter` where gradients are needed, by ops whose
derivatives have known sizes.

Where all selected positions get the same value, the write is an elementwise choice, whose derivative does not
depend on the number of ones in the mask. Otherwise the forward pass computes the indices, so that the
backward pass need not do it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.tensors.fake import Fake
from frameloom.ir.symbolic.compare import equal

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

INDICES = (torch.int64, torch.int32)
TOO_FEW = "Number of elements of source < number of ones in mask"


def record_setitem(recorder: Recorder, x: Any, key: Any, value: Any) -> Any:
    if recorder.current_call.is_followed and _is_a_choice(x, key, value):
        return recorder.run(_choose, (x, key, value), {})
    keys = key if isinstance(key, tuple) else (key,)
    return recorder.run(_by_places(recorder, operator.setitem, x, keys), (x, key, value), {})


def record_index_put(fn: Any) -> Any:
    def record(recorder: Recorder, x: Any, indices: Any, values: Any, accumulate: Any = False) -> Any:  # fmt: skip
        fn_by_places = _by_places(recorder, fn, x, indices)
        return recorder.run(fn_by_places, (x, indices, values, accumulate), {})

    return record


def record_gradient_of_index(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Records `index_put` without a check where autograd puts the gradient of `x[indices]` back on a GPU: reading
    has checked the indices. Eager checks them once more on the CPU only."""
    node = torch._C._current_autograd_node()  # type: ignore[attr-defined]
    is_gradient = node is not None and node.name() == "IndexBackward0"
    if is_gradient and args[0].device.type != "cpu" and _are_indices(args[1]):
        func = torch.ops.aten._unsafe_index_put.default
    return recorder.pure(func, args, kwargs)


def _are_indices(indices: Any) -> bool:
    return all(i is None or i.dtype in INDICES for i in indices)


def _by_places(recorder: Recorder, fn: Any, x: Any, keys: Any) -> Any:
    """Returns `fn`, with indices in place of masks where the derivative would look for these indices."""
    chosen = recorder.current_call.is_followed and _has_masks_that_fit(x, keys)
    return partial(_set_places, recorder, fn) if chosen else fn


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


def record_masked_scatter(recorder: Recorder, input: Any, mask: Any, source: Any) -> Any:
    fakes = (input, mask, source)
    known = all(isinstance(f, torch.Tensor) and f.device.type == "cpu" for f in fakes)
    followed = torch.is_grad_enabled() and known and (input.requires_grad or source.requires_grad)
    if not followed or mask.dtype is not torch.bool or input.dtype is not source.dtype:
        return recorder.run(torch.Tensor.masked_scatter, fakes, {})
    return recorder.run(_looked_up, fakes, {})


def _looked_up(input: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Looks up an element for each position: the elements of the source in order, and one extra element at the
    end for positions that take none. PyTorch's own derivative selects by the mask, whose count of ones depends
    on data."""
    input, mask = torch.broadcast_tensors(input, mask)
    elements = source.reshape(-1)
    place = mask.reshape(-1).cumsum(0) - 1
    none = torch.full_like(place, elements.numel())
    torch.ops.aten._assert_async.msg((place < none).all(), TOO_FEW)
    # The check may run after the lookup.
    place = torch.where(mask.reshape(-1), torch.minimum(place, none), none)
    padded = torch.cat([elements, elements.new_zeros(1)])
    taken: torch.Tensor = torch.ops.aten._unsafe_index(padded, [place])
    made = torch.where(mask, taken.view(input.shape), input)
    if input.requires_grad:
        assert made.grad_fn is not None
        made.grad_fn.register_hook(partial(_as_eager, mask))
    # Unlike `contiguous`, it also gives such strides in dimensions of size 1.
    return made.clone(memory_format=torch.contiguous_format)


def _as_eager(
    mask: torch.Tensor, gradients: Sequence[Any], given: Sequence[Any]
) -> tuple[Any, ...]:
    """Returns the gradients of `where`; that of the input comes from another op, which has one layout."""
    return *gradients[:-1], given[0].masked_fill(mask, 0)
