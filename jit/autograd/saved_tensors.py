"""Reads the tensors that autograd has saved for a node one by one, and finds those that were changed in place
since.  `saved_tensors` only raises in this case.

PyTorch 2.13 has an interface for this.  With versions that lack it, such as 2.11, hooks get the saved
tensors; their versions are compared here, in later passes, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

HAS_UNPACK = hasattr(torch._C._autograd.SavedTensor, "unpack")

Entry = tuple[torch.Tensor, bool]  # the tensor, and whether it was changed


def noted(own: Sequence[bool]) -> tuple[int, ...]:
    """Returns the positions of saved tensors whose versions `entries` needs.  `own`: per saved tensor,
    whether it is a result of the node.  For these PyTorch does not report changes; and their version may not
    be 0 at first, because library calls count their writes to memory of the plan."""
    return tuple([place for place, is_own in enumerate(own) if is_own or not HAS_UNPACK])


def release_saved(context: Any) -> None:
    """Frees all that a node has saved for its passes."""
    context.others = context.memory = None
    context.maybe_clear_saved_tensors()


def entries(
    context: Any, count: int, places: Sequence[int], versions: Sequence[int]
) -> list[Entry] | None:
    """Returns all saved tensors in order; None if they cannot be read.  `count`: how many there are;
    `versions`: the versions of those at `places` when they were saved."""
    try:
        left = list(context._raw_saved_tensors)
    except RuntimeError:  # they were freed
        return None
    known = dict(zip(places, versions, strict=True))
    if HAS_UNPACK:
        return [
            (s.data, s.data._version != known[k]) if k in known else _unpacked(s)
            for k, s in enumerate(left)
        ]
    packed = [one() for one in context.packed]
    if not packed:
        packed = [_Packed(known[k]) for k in range(count)]
        for saved, one in zip(left, packed, strict=True):
            try:
                saved.register_hooks(one.pack, _as_it_was)
            except RuntimeError:
                # A leaf that has a history since a write to it takes no hooks; or the program has hooks of
                # its own.
                one.tensor, one.is_hooked = saved.data, False
                if one.tensor is None or not one.is_changed:
                    return None
        # The saved tensors hold these objects as long as they are saved.
        context.packed = [
            weakref.ref(one) if one.is_hooked else partial(_same, one) for one in packed
        ]
    changed = [one.is_changed for one in packed]
    if not all(one.is_hooked for one in packed):
        if torch.is_grad_enabled():
            return None  # their histories cannot be read
        return [(one.tensor, c) for one, c in zip(packed, changed, strict=True)]
    try:
        for one in packed:
            one.is_asked = False
        return [*zip(context.saved_tensors, changed, strict=True)]  # with their histories
    finally:
        for one in packed:
            one.is_asked = True


class _Packed:
    """A tensor, and its version when it was saved."""

    tensor: torch.Tensor

    def __init__(self, version: int) -> None:
        self.version = version
        self.is_asked = True  # whether unpacking checks for changes
        self.is_hooked = True  # whether autograd unpacks it with `_as_it_was`

    def pack(self, tensor: torch.Tensor) -> _Packed:
        self.tensor = tensor
        return self

    @property
    def is_changed(self) -> bool:
        return self.tensor._version != self.version


def _same(one: _Packed) -> _Packed:
    return one


def _as_it_was(packed: _Packed) -> torch.Tensor:
    if packed.is_asked and packed.is_changed:
        raise RuntimeError(changed(packed.tensor, packed.version))
    return packed.tensor


def _unpacked(saved: Any) -> Entry:
    try:
        return saved.unpack(), False
    except RuntimeError:
        return saved.data, True


def changed(tensor: torch.Tensor, version: int) -> str:
    """Returns autograd's error message."""
    return (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version} "
        "instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, "
        "with torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )
