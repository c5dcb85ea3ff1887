"""Everything about the shapes of normalizations, and of dropout: sizes, layouts, dtypes of the statistics, and
what kernels refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.derivative_rules import gradients_of
from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.image_rules import in_format_of
from frameloom.capture.shapes.iteration import (
    as_suggested,
    dense_like,
    empty,
    equal_sizes,
    fresh,
    iterator_strides,
    same_sizes,
)
from frameloom.capture.shapes.refused import of_ints, overloads, refuse
from frameloom.capture.shapes.registry import FRESH, KEEPING, layout, rule, sized_rule
from frameloom.capture.tensors.sized import (
    SizedMeta,
    empty_strided,
    has_channels_last_strides,
    has_sizes,
)
from frameloom.ir.symbolic.compare import equal
from frameloom.ir.symbolic.expr import Int

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)
LAYER, GROUP = aten.native_layer_norm.default, aten.native_group_norm.default
LAYER_BACKWARD, GROUP_BACKWARD = (
    aten.native_layer_norm_backward.default,
    aten.native_group_norm_backward.default,
)
BATCH = aten._native_batch_norm_legit_functional.default  # in training
BATCH_ALONE = aten._native_batch_norm_legit.no_stats
BATCH_EVALUATION = aten._native_batch_norm_legit_no_training.default
BATCH_BACKWARD = aten.native_batch_norm_backward.default
RMS, RMS_BACKWARD = aten._fused_rms_norm.default, aten._fused_rms_norm_backward.default
FRESH |= {LAYER, LAYER_BACKWARD, RMS}
KEEPING |= {
    GROUP, GROUP_BACKWARD, BATCH, BATCH_BACKWARD, aten.native_batch_norm.default, aten._native_batch_norm_legit.default,
    aten.native_dropout.default,
}  # fmt: skip
refuse(LAYER, GROUP)(of_ints)
refuse(
    *overloads(
        aten.native_batch_norm, aten._native_batch_norm_legit, aten._native_batch_norm_legit_functional, aten.cudnn_batch_norm,
        aten._batch_norm_with_update, aten.native_dropout_backward,
    ),
    device="cuda",
)(of_ints)  # fmt: skip


@refuse(*overloads(aten.native_layer_norm, aten.native_group_norm))
def _is_mixed(x: torch.Tensor, *rest: Any) -> bool:
    """Whether the dtypes are mixed in a refused way. Only 16-bit inputs may have parameters of another dtype:
    float32."""
    dtypes = {p.dtype for p in rest if isinstance(p, torch.Tensor)}
    return not (dtypes <= {x.dtype} or (x.dtype in HALVES and dtypes == {torch.float32}))


def _own(x: Any, parameters: Any) -> torch.dtype:
    """Returns the dtype of the parameters; without parameters, the input's."""
    given = [p.dtype for p in parameters if isinstance(p, torch.Tensor)]
    return given[0] if given else x.dtype


def _statistics(x: Any, statistics: Any, parameters: Any) -> Any:
    """Statistics of 16-bit inputs have the parameters' dtype."""
    if x.dtype not in HALVES:
        return statistics
    own = _own(x, parameters)
    return [s.to(own) if s.dtype.is_floating_point else s for s in statistics]


# --- over the last dimensions


@rule(LAYER)
def _layer_norm(
    func: Any, x: Any, normalized: Sequence[Int], weight: Any, bias: Any, eps: float
) -> Any:
    rank = len(normalized)
    if not rank or not same_sizes(x.shape[-rank:], normalized):
        return None
    statistics = [*x.shape[:-rank], *([1] * rank)]
    known = all(p is None or equal_sizes(p.shape, normalized) for p in (weight, bias))
    if known and x.is_contiguous():
        return empty(x.shape, x.dtype), empty(statistics, x.dtype), empty(statistics, x.dtype)
    given = (x, normalized, weight, bias, eps)
    return with_hint_layout(func, given, {}, [x.shape, statistics, statistics])


@layout(LAYER, devices=("cpu",))
def _layer_norm_on_cpu(meta: Any, x: Any, shape: Any, *parameters: Any) -> Any:
    out, *statistics = meta
    return out, *_statistics(x, statistics, parameters[:2])


@layout(LAYER, devices=("cuda",))
def _layer_norm_on_gpu(meta: Any, *args: Any) -> Any:
    """Statistics keep the dtype in which they are computed."""
    out, *statistics = meta
    return out, *(s.float() if s.dtype in HALVES else s for s in statistics)


sized_rule(LAYER_BACKWARD)(gradients_of("input", "normalized_shape", "normalized_shape"))


def _contiguous(meta: Any, *args: Any) -> Any:
    results = (m if m is None else empty(m.shape, m.dtype) for m in meta)
    return tuple(results)


layout(LAYER_BACKWARD)(_contiguous)
layout(RMS, RMS_BACKWARD, devices=("cuda",))(_contiguous)

# --- over groups of channels


def _check_channels(channels: Int, *parameters: Any) -> None:
    """Raises for parameters of a wrong shape: meta kernels accept any."""
    for p in parameters:
        if p is not None and not (p.dim() == 1 and equal(p.shape[0], channels)):
            raise RuntimeError("parameters for another number of channels")


@rule(GROUP)
def _group_norm(
    func: Any, x: Any, weight: Any, bias: Any, n: Int, c: Int, hw: Int, groups: int, eps: float
) -> Any:
    _check_channels(c, weight, bias)
    if not x.is_contiguous() or any(p is not None and p.dtype != x.dtype for p in (weight, bias)):
        return None
    return empty(x.shape, x.dtype), empty([n, groups], x.dtype), empty([n, groups], x.dtype)


@layout(GROUP, devices=("cpu",))
def _group_norm_on_cpu(meta: Any, x: Any, *parameters: Any) -> Any:
    out, *statistics = meta
    return in_format_of(x, out), *_statistics(x, statistics, parameters[:2])


sized_rule(GROUP_BACKWARD)(gradients_of("input", "channels", "channels"))


@layout(GROUP_BACKWARD, devices=("cpu",))
def _group_norm_backward_on_cpu(
    meta: Any, grad: Any, x: Any, mean: Any, deviation: Any, weight: Any, *rest: Any
) -> Any:
    """Gradients have the dtypes of the tensors that they are gradients of, for any dtype of the
    statistics."""
    dtypes = x.dtype, *[_own(x, [weight])] * 2
    return tuple(m if m is None else m.to(of) for m, of in zip(meta, dtypes, strict=True))


# --- over batches


@rule(BATCH_EVALUATION)
def _batch_norm_evaluation(func: Any, x: Any, *rest: Any) -> Any:
    """In evaluation the kernel returns no statistics, unlike its meta kernel."""
    plain = all(p is None or p.dtype == x.dtype for p in rest[:4])
    if isinstance(x, SizedMeta):
        if not plain:
            return None
        out = as_suggested(x, x.shape)
    else:
        out = empty(x.shape, x.dtype) if plain and x.is_contiguous() else func(x, *rest)[0]
    return out, empty(0, x.dtype), empty(0, x.dtype)


@rule(BATCH, BATCH_ALONE)
def _batch_norm_training(func: Any, x: Any, *rest: Any) -> Any:
    if isinstance(x, SizedMeta):
        shapes = [x.shape, *[x.shape[1:2]] * (len(func._schema.returns) - 1)]
        return with_hint_layout(func, (x, *rest), {}, shapes)
    if func is BATCH_ALONE:
        return None
    if not rest[4]:
        out, _, _, *running = func(x, *rest)
        return out, empty(0, x.dtype), empty(0, x.dtype), *running
    dtypes = {None if p is None else p.dtype for p in rest[:4]}
    mixed = x.dtype in HALVES and dtypes == {torch.float32} and 1 not in x.shape
    if not (dtypes == {x.dtype} or mixed) or not x.is_contiguous():
        return None
    channels, dtype = x.shape[1:2], torch.float32 if mixed else x.dtype
    return empty(x.shape, x.dtype), *(empty(channels, dtype) for _ in range(4))


_batch_gradients = gradients_of("input", "channels", "channels")


@rule(BATCH_BACKWARD)
def _batch_norm_backward(
    func: Any, grad: Any, x: Any, weight: Any, mean: Any, var: Any, save_mean: Any, save_invstd: Any, training: bool,
    eps: float, mask: Sequence[bool],
) -> Any:  # fmt: skip
    given = (grad, x, weight, mean, var, save_mean, save_invstd, training, eps, mask)
    if has_sizes(x.shape, grad.shape) or not training or weight is None or not all(mask):
        return _batch_gradients(func, *given)
    like = grad.shape == x.shape and grad.dtype == x.dtype and x.dim() > 1 and 1 not in x.shape
    if not like or not grad.is_contiguous() or not x.is_contiguous():
        return None
    channels = x.shape[1:2]
    return empty(x.shape, x.dtype), empty(channels, weight.dtype), empty(channels, weight.dtype)


def _is_channels_last(x: Any) -> bool:
    """Whether `x` is contiguous in that format alone; its strides may suggest another one if sizes are 1."""
    forms = {4: torch.channels_last, 5: torch.channels_last_3d}
    if x.dim() not in forms or x.is_contiguous():
        return False
    return bool(x.is_contiguous(memory_format=forms[x.dim()]))


@layout(
    BATCH, BATCH_ALONE, BATCH_EVALUATION, aten._batch_norm_with_update_functional.default, devices=("cpu",)
)  # fmt: skip
def _batch_norm_on_cpu(meta: Any, x: Any, *parameters: Any) -> Any:
    """Channels-last input gives a channels-last result; any other gives the strides of a fresh tensor."""
    out, *statistics = meta
    last = _is_channels_last(x) or (not x.is_contiguous() and has_channels_last_strides(x))
    out = fresh(out.shape, out.dtype, last)
    return out, *_statistics(x, statistics, parameters[:4])


@layout(BATCH_BACKWARD, devices=("cpu",))
def _batch_norm_backward_on_cpu(meta: Any, grad: Any, x: Any, *parameters: Any) -> Any:
    out, *others = meta
    if out is not None:
        last = has_channels_last_strides(x) or _is_channels_last(x)
        out = fresh(out.shape, out.dtype, last)
    return out, *others


# --- dropout


@sized_rule(aten.native_dropout.default)
def _dropout(func: Any, x: Any, p: float, train: bool | None) -> Any:
    return dense_like(x), dense_like(x, torch.bool)


@layout(aten.native_dropout.default, devices=("cpu",))
def _dropout_on_cpu(meta: Any, x: Any, p: float, train: bool | None) -> Any:
    """The result is a product with the mask; without training, a copy."""
    mask, shape = dense_like(x.meta, torch.bool), tuple(x.shape)
    if train is False:
        return dense_like(x.meta), mask
    return empty_strided(shape, iterator_strides(shape, [x.meta, mask], True), x.dtype), mask


@layout(aten.native_dropout.default, devices=("cuda",))
def _dropout_on_gpu(meta: Any, x: Any, *args: Any) -> Any:
    return _dropout(aten.native_dropout.default, x.meta, *args)
