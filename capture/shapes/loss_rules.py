"""Rules of shapes/registry.py for losses."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.iteration import broadcast, dense_like, empty, equal_sizes, iterated
from frameloom.capture.shapes.registry import is_sized, layout, rule, sized_rule
from frameloom.ir.symbolic.compare import equal

aten = torch.ops.aten
# Losses per element whose kernels write to an `empty_like` of the input or the target.
MADE_LIKE = {
    aten.binary_cross_entropy.default: 0,
    aten.binary_cross_entropy_with_logits.default: 1,  # `1 - target` is one, and the rest is in place
    aten.huber_loss.default: 0,  # for any dtype of the target
}
ITERATED = (aten.mse_loss.default, aten.smooth_l1_loss.default)


@functools.cache
def _place_of_reduction(func: Any) -> int:
    return [a.name for a in func._schema.arguments[2:]].index("reduction")


@rule(*MADE_LIKE, *ITERATED)
@sized_rule(aten.soft_margin_loss.default)
def _elementwise_loss(func: Any, x: Any, target: Any, *args: Any) -> Any:
    place = _place_of_reduction(func)
    reduction = args[place] if place < len(args) else 1
    shape = broadcast(x.shape, target.shape)
    if shape is None:
        return None
    if func in ITERATED:
        dtype = torch.promote_types(x.dtype, target.dtype)
        return empty((), dtype) if reduction else iterated([x, target], dtype)
    if not is_sized((x, target)) and x.shape == target.shape:
        if func in MADE_LIKE and not reduction:
            return dense_like((x, target)[MADE_LIKE[func]])
        if func is aten.huber_loss.default:
            return empty((), x.dtype)
    return with_hint_layout(func, (x, target, *args), {}, [() if reduction else shape])


@rule(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def _nll_loss(
    func: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int
) -> Any:
    classes = 0 if x.dim() == 1 else 1
    wanted: Sequence[Any] = (*x.shape[:classes], *x.shape[classes + 1 :])
    ranks = (1, 2) if func is aten.nll_loss_forward.default else (4,)
    if x.dim() not in ranks or not equal_sizes(wanted, target.shape):
        return None
    if weight is not None and not (weight.dim() == 1 and equal(weight.shape[0], x.shape[classes])):
        return None
    return empty(() if reduction else target.shape, x.dtype), empty((), x.dtype)


@layout(aten.multi_margin_loss.default, devices=("cpu",))
def _multi_margin_loss(meta: Any, x: Any, target: Any, *args: Any) -> Any:
    """One loss per class of `target`, which may be a number."""
    return meta if target.dim() else empty((), meta.dtype)
