"""Everything about the shapes of attention: sizes, and layouts by the kernel.

PyTorch's meta kernels for attention on GPUs are Python modules that nothing else imports. The tensors that
the forward pass saves for the backward pass are described as in the meta kernels, but unused.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch

from frameloom.capture.shapes.derivative_rules import gradients_of
from frameloom.capture.shapes.iteration import broadcast, dense_like, empty, is_dense
from frameloom.capture.shapes.registry import layout, rule, sized_rule
from frameloom.capture.tensors.sized import (
    SizedMeta,
    assume_elements,
    dense_strides,
    empty_strided,
    specialized,
)
from frameloom.ir.symbolic.compare import equal, same
from frameloom.ir.symbolic.expr import hint_of

aten = torch.ops.aten
sized_rule(
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    aten._scaled_dot_product_flash_attention_backward.default,
    aten._scaled_dot_product_cudnn_attention_backward.default,
)(gradients_of("query", "key", "value"))
sized_rule(aten._scaled_dot_product_efficient_attention_backward.default)(
    gradients_of("query", "key", "value", "attn_bias")
)


@rule(aten.scaled_dot_product_attention.default)
def _attention(func: Any, q: Any, k: Any, v: Any, *rest: Any, **options: Any) -> Any:
    fits = min(q.dim(), k.dim(), v.dim()) > 1
    if not fits or not same(q.shape[-1], k.shape[-1]) or not same(k.shape[-2], v.shape[-2]):
        if any(isinstance(t, SizedMeta) for t in (q, k, v)):
            return None
        raise RuntimeError("sizes of query, key and value do not fit")
    heads = q.shape[:-2]
    if not options.get("enable_gqa"):
        heads = broadcast(*(t.shape[:-2] for t in (q, k, v)))
        if heads is None:
            raise RuntimeError("numbers of heads of query, key and value do not fit")
    return empty([*heads, q.shape[-2], v.shape[-1]], q.dtype)


@layout(aten.scaled_dot_product_attention.default, devices=("cuda",))
def _attention_on_gpu(meta: Any, query: Any, *others: Any, **options: Any) -> Any:
    """The result has the dimension order of the query: the flash kernels do so. Others order it by positions
    first, which is the order of a transformer's query, too."""
    order = sorted(range(query.dim()), key=lambda d: (-hint_of(query.stride(d)), d))
    for a, b in itertools.pairwise(order):
        # For symbolic sizes this becomes a guard.
        if not query.stride(a) >= query.stride(b):
            return specialized(meta)
    return empty_strided(meta.shape, dense_strides(meta.shape, order[::-1]), meta.dtype)


@functools.cache
def _keeps_layout() -> bool:
    """Whether flash attention's output has the strides of the query; in older PyTorch it has those of (batch,
    length, heads, depth)."""
    q = torch.ones(1, 2, 3, 4, device="cpu")
    with torch.inference_mode():
        out = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(q, q, q)[0]
    return out.stride() == q.stride()


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash_on_cpu(func: Any, q: Any, k: Any, v: Any, *rest: Any, **options: Any) -> Any:
    assume_elements(q, k, v)  # the kernel divides by these sizes
    if not _keeps_layout() or q.dim() != 4 or not same(q.shape[3], v.shape[3]):
        return None
    if isinstance(q, SizedMeta):
        if not equal(k.shape[2], v.shape[2]):
            return None  # the kernel does not check it: it reads and writes beyond the shorter one
    elif 0 in q.stride() and not is_dense(q):
        return None
    b, h, n, _ = q.shape
    statistics = torch.float32 if q.dtype in (torch.bfloat16, torch.float16) else q.dtype
    return dense_like(q), empty((b, n, h), statistics).transpose(1, 2)


@rule(aten._scaled_dot_product_flash_attention.default)
def _flash(
    func: Any, q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False,
    *, scale: float | None = None,
) -> Any:  # fmt: skip
    assume_elements(q, k, v)
    if return_debug_mask or q.dim() != 4 or not is_dense(q):
        return None
    seed, offset = empty(2, torch.uint64), empty((), torch.uint64)
    sums = empty(q.shape[:3], torch.float32)
    return dense_like(q), sums, None, None, q.shape[2], k.shape[2], seed, offset, empty(0, q.dtype)


@rule(aten._scaled_dot_product_efficient_attention.default)
def _efficient(
    func: Any, q: Any, k: Any, v: Any, attn_bias: Any, compute_log_sumexp: bool, *rest: Any, **options: Any
) -> Any:  # fmt: skip
    assume_elements(q, k, v)
    if q.dim() != 4:
        return None
    b, h, n, _ = q.shape
    out = empty((b, n, h, v.shape[3]), q.dtype).transpose(1, 2)
    sums = empty((b, h, -(-n // 32) * 32 if compute_log_sumexp else 0), torch.float32)
    return out, sums, empty((), torch.int64), empty((), torch.int64)


@rule(aten._scaled_dot_product_cudnn_attention.default)
def _cudnn(func: Any, q: Any, k: Any, v: Any, *rest: Any, **options: Any) -> Any:
    assume_elements(q, k, v)
    if q.dim() != 4 or not is_dense(q) or q.shape[3] != v.shape[3]:
        return None
    sums = empty((*q.shape[:3], 1), torch.float32)
    seed, offset = empty((), torch.int64), empty((), torch.int64)
    return dense_like(q), sums, None, None, q.shape[2], k.shape[2], seed, offset, None


@rule(aten._native_multi_head_attention.default)
def _multi_head(func: Any, query: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """If the weights are not needed, the second result is None, unlike in its meta kernel."""
    is_needed = rest[9] if len(rest) > 9 else options.get("need_weights", True)
    return None if is_needed else (empty(query.shape, query.dtype), None)


@rule(aten._transformer_encoder_layer_fwd.default)
def _encoder_layer(func: Any, x: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """Before PyTorch 2.13 the op has no meta kernel."""
    return empty(x.shape, x.dtype)
