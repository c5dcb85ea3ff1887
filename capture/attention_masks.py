"""Whether the mask of an attention fits: PyTorch adds it in place, but not where it is asked with Fakes, and would take a larger one there."""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.shapes import expands_to
from frameloom.errors import Break


def check_mask(
    query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **named: Any
) -> None:
    """Raises Break where the last two dimensions cannot be expanded to those of the scores."""
    tensors = (query, key, attn_mask)
    if not all(isinstance(t, torch.Tensor) for t in tensors) or min(query.dim(), key.dim()) < 2:
        return
    scores = (query.shape[-2], key.shape[-2])
    if not expands_to(attn_mask.shape[-2:], scores):
        raise Break("op_error", "attention with a mask that does not fit")
