"""Masks of attention: whether a mask fits, and whether `is_causal` may depend on a size. PyTorch adds a mask
in place, but not for Fakes, where it would accept a mask that is too large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.shapes.iteration import expands_to
from frameloom.capture.values.const import TRUE, is_none
from frameloom.capture.values.numbers.size_truth import SizeTruth
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break
from frameloom.ir.symbolic.compare import at_most, same

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.values.base import Value

CAUSAL = 5  # its position among the arguments


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


def with_causality(
    t: Tracer, args: list[Value], kwargs: dict[str, Value]
) -> tuple[list[Value], dict[str, Value]]:
    """Returns the arguments of an attention, with True for an `is_causal` that is False only where there is
    one query and one key: then the query sees the key anyway."""
    given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs  # fmt: skip
    causal = t.look(given["is_causal"]) if "is_causal" in given else TRUE
    if not isinstance(causal, SizeTruth) or causal.is_specialized:
        return args, kwargs
    query, key = (t.look(given[name]) for name in ("query", "key"))
    if not isinstance(query, TensorValue) or not isinstance(key, TensorValue):
        return args, kwargs
    if ("attn_mask" in given and not is_none(t.look(given["attn_mask"]))) or query.fake.dim() < 2:
        return args, kwargs
    queries, keys = query.fake.shape[-2], key.fake.shape[-2]
    if not same(queries, keys) or not any(at_most(queries - 1, n) for n in causal.bounds()):
        return args, kwargs
    if len(args) > CAUSAL:
        return [*args[:CAUSAL], TRUE, *args[CAUSAL + 1 :]], kwargs
    return args, {**kwargs, "is_causal": TRUE}
