"""Records `masked_scatter` with gradients by ops whose derivatives have known sizes.

PyTorch's own derivative selects by the mask, whose count of ones depends on data. Instead, each position
looks up its element: the elements of the source in order, and one extra element at the end for positions that
take none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

TOO_FEW = "Number of elements of source < number of ones in mask"


def record_masked_scatter(recorder: Recorder, input: Any, mask: Any, source: Any) -> Any:
    fakes = (input, mask, source)
    known = all(isinstance(f, torch.Tensor) and f.device.type == "cpu" for f in fakes)
    followed = torch.is_grad_enabled() and known and (input.requires_grad or source.requires_grad)
    if not followed or mask.dtype is not torch.bool or input.dtype is not source.dtype:
        return recorder.run(torch.Tensor.masked_scatter, fakes, {})
    return recorder.run(_looked_up, fakes, {})


def _looked_up(input: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
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
