"""Keeps saved tensors of a graph's node after a backward pass: for results that had no gradient in it, and
for those whose passes free nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from frameloom.autograd.saved_tensors import changed as is_changed
from frameloom.capture.autograd.freed_history import TWICE

if TYPE_CHECKING:
    from frameloom.autograd.gradients import Gradients


class RetainedTensors:
    """Holds what the outputs without a gradient so far need, after autograd has freed the saved tensors: in
    plain PyTorch, a pass from one output frees nothing that only others need."""

    def __init__(self, done: frozenset[int], count: int) -> None:
        self.done, self.count = done, count
        self.tensors: dict[int, tuple[Any, int | None]] = {}
        self.is_needed = False

    def saved(self, region: Gradients, missing: frozenset[int]) -> list[Any]:
        changed = {
            k: is_changed(tensor, version)
            for k, (tensor, version) in self.tensors.items()
            if version is not None and tensor._version != version
        }
        everything = frozenset(range(len(region.how.tangents)))
        # A pass visits results in reverse order of their computation.
        for tangent in sorted(everything - missing, reverse=True):
            if not region.how.frees[tangent].isdisjoint(self.done):
                raise RuntimeError(TWICE)
            if changed and (read := region.reads(everything - {tangent}).intersection(changed)):
                raise RuntimeError(changed[min(read)])
        return [self.tensors[k][0] if k in self.tensors else None for k in range(self.count)]


def retain_after(context: Any, saved: Sequence[Any], missing: frozenset[int]) -> RetainedTensors:
    """Returns what the node keeps after a pass in which gradients are `missing`."""
    how = context.region.how
    everything = frozenset(range(len(how.tangents)))
    done = (everything - missing) | (
        context.retained.done if context.retained is not None else frozenset()
    )
    left = frozenset(k for k in everything if how.frees[k].isdisjoint(done))
    retained = RetainedTensors(done, len(saved))
    if left:
        for k in context.region.reads(everything - left):
            tensor = saved[k]
            # Not the output itself: it holds its history, which holds this object.
            inside = k < len(how.saved_inputs) or not isinstance(tensor, torch.Tensor)
            tensor = tensor if inside else tensor.detach()
            version = (
                getattr(tensor, "_version", None) if k not in context.region.saving.apart else None
            )
            # A tensor that was already changed gets a version that never matches.
            retained.tensors[k] = tensor, tensor._version - 1 if k in context.changed else version
        for k in range(len(saved) - len(how.sizes), len(saved)):  # layouts in plans depend on them
            retained.tensors[k] = saved[k], None
    if left & missing:
        retained.is_needed = True
        for k in range(len(how.saved_inputs)):  # for gradients of gradients, which run op by op
            retained.tensors.setdefault(k, (saved[k], None))
    return retained
