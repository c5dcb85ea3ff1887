"""The order in which the CPU draws the elements of a tensor that is dense but not contiguous, such as
dropout's mask in channels-last layout. It is the order of memory, so the mask is drawn as its contiguous
permutation. With some libraries the order is another one; such draws break the graph."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.recording.views import view
from frameloom.capture.shapes.iteration import is_dense
from frameloom.ir.symbolic.expr import hint_of

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder
    from frameloom.capture.tensors.fake import Fake

aten = torch.ops.aten


def in_memory_order(recorder: Recorder, func: Any, target: Any) -> Fake | None:
    """Returns a contiguous view of `target` that the op fills in the same order; None if there is none, or if
    `target` is contiguous itself."""
    if func is not aten.bernoulli_.float or target.device.type != "cpu":
        return None
    if target.is_contiguous() or not is_dense(target):
        return None
    if not _is_that_of_memory():
        return None
    # For symbolic sizes: if the view is contiguous, the order is right for all sizes.
    shape, strides = (list(map(hint_of, some)) for some in (target.shape, target.stride()))
    order = sorted(range(target.dim()), key=lambda d: (-strides[d], -shape[d], d))
    seen: Fake = view(recorder, aten.permute.default, (target, order), {})
    return seen if seen.is_contiguous() else None


@functools.cache
def _is_that_of_memory() -> bool:
    with torch._C._DisableTorchDispatch():
        last, contiguous = torch.empty(2, 8, 5, 7), torch.empty(2, 5, 7, 8)
        last = last.contiguous(memory_format=torch.channels_last)
        drawn = (
            t.bernoulli_(0.5, generator=torch.Generator().manual_seed(1))
            for t in (last, contiguous)
        )
        first, second = drawn
        return bool(torch.equal(first.permute(0, 2, 3, 1), second))
