"""Rules of shapes/registry.py for ops of layers: norms, attention, convolutions, losses."""

from __future__ import annotations

import functools
from typing import Any

import torch

from frameloom.capture.shapes.device_layouts import HALVES
from frameloom.capture.shapes.registry import (
    empty,
    is_dense,
    iterator_strides,
    rule,
)
from frameloom.ir.symbolic.compare import equal
from frameloom.ir.symbolic.expr import Int

aten = torch.ops.aten


@rule(aten.native_layer_norm.default)
def native_layer_norm(
    func: Any, x: torch.Tensor, normalized: list[int], weight: Any, bias: Any, eps: float
) -> Any:
    rank = len(normalized)
    if not rank or list(x.shape[-rank:]) != list(normalized) or not x.is_contiguous():
        return None
    if any(p is not None and list(p.shape) != list(normalized) for p in (weight, bias)):
        return None
    # The dtype of the statistics depends on the device (device_layouts.py).
    statistics = [*x.shape[:-rank], *([1] * rank)]
    return empty(x.shape, x.dtype), empty(statistics, x.dtype), empty(statistics, x.dtype)


@rule(aten._native_batch_norm_legit_no_training.default)
def _batch_norm_evaluation(func: Any, x: torch.Tensor, *rest: Any) -> Any:
    """In evaluation the kernel returns no statistics, unlike its meta kernel."""
    parameters = rest[:4]
    plain = x.is_contiguous() and all(p is None or p.dtype == x.dtype for p in parameters)
    out = empty(x.shape, x.dtype) if plain else func(x, *rest)[0]
    return out, empty(0, x.dtype), empty(0, x.dtype)


@rule(aten.embedding.default)
def _embedding(func: Any, weight: torch.Tensor, indices: torch.Tensor, *rest: Any) -> Any:
    if weight.dim() != 2 or not indices.is_contiguous():
        return None
    return empty((*indices.shape, weight.shape[1]), weight.dtype)


@functools.cache
def attention_keeps_layout() -> bool:
    """Whether flash attention's output has the strides of the query; in older PyTorch it has those of (batch,
    length, heads, depth)."""
    q = torch.ones(1, 2, 3, 4, device="cpu")
    with torch.inference_mode():
        out = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(q, q, q)[0]
    return out.stride() == q.stride()


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash_attention_cpu(
    func: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **kwargs: Any
) -> Any:
    if not attention_keeps_layout() or q.shape[3] != v.shape[3]:
        return None
    b, h, n, _ = q.shape
    statistics = torch.float32 if q.dtype in (torch.bfloat16, torch.float16) else q.dtype
    dense = is_dense(q)
    if not dense and 0 in q.stride():
        return None
    strides = q.stride() if dense else iterator_strides(tuple(q.shape), [q], False)
    out = torch.empty_strided(q.shape, strides, dtype=q.dtype, device="meta")
    return out, empty((b, n, h), statistics).transpose(1, 2)


def _broadcast(*tensors: torch.Tensor) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*(t.shape[:-2] for t in tensors)))


@rule(aten.scaled_dot_product_attention.default)
def _attention(
    func: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **kwargs: Any
) -> Any:
    if (
        min(q.dim(), k.dim(), v.dim()) < 2
        or q.shape[-1] != k.shape[-1]
        or k.shape[-2] != v.shape[-2]
    ):
        raise RuntimeError("sizes of query, key and value do not fit")
    heads = q.shape[:-2] if kwargs.get("enable_gqa") else _broadcast(q, k, v)
    return empty((*heads, q.shape[-2], v.shape[-1]), q.dtype)


@rule(aten.convolution.default)
def _convolution(
    func: Any,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    """Computes sizes by the usual formula; contiguous input gives a contiguous result. For other layouts,
    PyTorch chooses the format (see convolution_layouts.py)."""
    if not transposed and x.dim() == weight.dim() and x.shape[1] != weight.shape[1] * groups:
        raise RuntimeError("the weight is for another number of channels")
    if transposed or not x.is_contiguous() or not weight.is_contiguous() or x.dim() != weight.dim():
        return None
    spatial = [
        (x.shape[2 + i] + 2 * padding[i % len(padding)]
         - dilation[i % len(dilation)] * (weight.shape[2 + i] - 1) - 1) // stride[i % len(stride)] + 1
        for i in range(x.dim() - 2)
    ]  # fmt: skip
    if any(n <= 0 for n in spatial):
        return None
    return empty((x.shape[0], weight.shape[0], *spatial), x.dtype)


@rule(aten.nll_loss_forward.default)
def _nll_loss_forward(
    func: Any, x: torch.Tensor, target: torch.Tensor, weight: Any, reduction: int, ignore_index: int
) -> Any:
    if x.dim() != 2 or target.shape != x.shape[:1] or weight is not None:
        return None
    return empty(target.shape if reduction == 0 else (), x.dtype), empty((), x.dtype)


def check_channels(channels: Int, *parameters: Any) -> None:
    """Raises for parameters of a wrong shape: meta kernels accept any."""
    for p in parameters:
        if p is not None and not (p.dim() == 1 and equal(p.shape[0], channels)):
            raise RuntimeError("parameters for another number of channels")


@rule(aten.native_group_norm.default)
def _native_group_norm(
    func: Any,
    x: torch.Tensor,
    weight: Any,
    bias: Any,
    n: int,
    c: int,
    hw: int,
    groups: int,
    eps: float,
) -> Any:
    check_channels(c, weight, bias)
    if not x.is_contiguous() or any(p is not None and p.dtype != x.dtype for p in (weight, bias)):
        return None
    return empty(x.shape, x.dtype), empty((n, groups), x.dtype), empty((n, groups), x.dtype)


@rule(aten._native_batch_norm_legit_functional.default)
def _batch_norm_training(
    func: Any,
    x: torch.Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    *rest: Any,
) -> Any:
    parameters = (weight, bias, mean, var)
    if not training:
        out, _, _, *running = func(x, *parameters, training, *rest)
        return out, empty(0, x.dtype), empty(0, x.dtype), *running
    dtypes = {None if p is None else p.dtype for p in parameters}
    mixed = x.dtype in HALVES and dtypes == {torch.float32} and 1 not in x.shape
    if not (dtypes == {x.dtype} or mixed) or not x.is_contiguous():
        return None
    channels, dtype = x.shape[1:2], torch.float32 if mixed else x.dtype
    return empty(x.shape, x.dtype), *(empty(channels, dtype) for _ in range(4))


@rule(aten.native_batch_norm_backward.default)
def _batch_norm_derivative(
    func: Any,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: Any,
    mean: Any,
    var: Any,
    save_mean: Any,
    save_invstd: Any,
    training: bool,
    eps: float,
    mask: list[bool],
) -> Any:
    if not training or weight is None or not all(mask) or 1 in x.shape or x.dim() < 2:
        return None
    like = grad.shape == x.shape and grad.dtype == x.dtype
    if not like or not grad.is_contiguous() or not x.is_contiguous():
        return None
    channels = x.shape[1:2]
    return empty(x.shape, x.dtype), empty(channels, weight.dtype), empty(channels, weight.dtype)


@rule(aten._native_multi_head_attention.default)
def _attention(func: Any, query: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """If the weights are not needed, the second result is None, unlike in its meta kernel."""
    is_needed = rest[9] if len(rest) > 9 else options.get("need_weights", True)
    return None if is_needed else (empty(query.shape, query.dtype), None)


@rule(aten._transformer_encoder_layer_fwd.default)
def _encoder_layer(func: Any, x: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """Before PyTorch 2.13 the op has no meta kernel."""
    return empty(x.shape, x.dtype)
