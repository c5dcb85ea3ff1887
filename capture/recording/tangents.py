"""What PyTorch asks about a tensor and its tangent before it joins them for forward-mode derivatives.

If the two have the same layout and storages of the same size, the tangent is kept; otherwise it is copied
into the tensor's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.tensors.fake import Fake
from frameloom.errors import Break
from frameloom.ir.symbolic.compare import equal
from frameloom.ir.symbolic.expr import Int

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

aten = torch.ops.aten


def _is_same_size(recorder: Recorder, own: Fake, other: Fake) -> bool:
    return own.ndim == other.ndim and all(map(equal, own.shape, other.shape))


def _has_same_storage_numel(recorder: Recorder, own: Fake, other: Fake) -> bool:
    return equal(_storage_size(recorder, own), _storage_size(recorder, other))


def _storage_size(recorder: Recorder, fake: Fake) -> Int:
    """Returns the number of elements in the storage, as the graph would make it."""
    root = fake.memory.root
    owner = recorder.memory_owner(root)
    size: Int = 0
    if all(n != 0 for n in root.shape):
        steps = zip(root.shape, root.stride(), strict=True)
        size = 1 + root.storage_offset() + sum((n - 1) * step for n, step in steps)
    size = size * root.dtype.itemsize
    if owner is not None and owner[1].untyped_storage().nbytes() != int(size):
        raise Break("unsupported_op", "a tangent of a part of a tensor")
    return size // fake.dtype.itemsize


TANGENT_QUERIES: dict[Any, Any] = {
    aten.is_same_size.default: _is_same_size,
    aten._has_same_storage_numel.default: _has_same_storage_numel,
}
