"""Rules of shapes/registry.py for attention on GPUs: PyTorch's meta kernels for it are Python modules that
nothing else imports.

The tensors that the forward pass saves for the backward pass are described as in the meta kernels, but
unused.
"""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.shapes.registry import empty, is_dense, rule
from frameloom.capture.tensors.sized import assume_elements

aten = torch.ops.aten


@rule(aten._scaled_dot_product_flash_attention.default)
def _flash(
    func: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0,
    is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    assume_elements(q, k, v)
    if return_debug_mask or q.dim() != 4 or not is_dense(q):
        return None
    out = torch.empty_strided(q.shape, q.stride(), dtype=q.dtype, device="meta")
    seed, offset = empty(2, torch.uint64), empty((), torch.uint64)
    sums = empty(q.shape[:3], torch.float32)
    return out, sums, None, None, q.shape[2], k.shape[2], seed, offset, empty(0, q.dtype)


@rule(aten._scaled_dot_product_efficient_attention.default)
def _efficient(
    func: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_bias: Any,
    compute_log_sumexp: bool, *rest: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    assume_elements(q, k, v)
    if q.dim() != 4:
        return None
    b, h, n, _ = q.shape
    out = empty((b, n, h, v.shape[3]), q.dtype).transpose(1, 2)
    sums = empty((b, h, -(-n // 32) * 32 if compute_log_sumexp else 0), torch.float32)
    return out, sums, empty((), torch.int64), empty((), torch.int64)


@rule(aten._scaled_dot_product_cudnn_attention.default)
def _cudnn(
    func: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **kwargs: Any
) -> Any:
    assume_elements(q, k, v)
    if q.dim() != 4 or not is_dense(q) or q.shape[3] != v.shape[3]:
        return None
    out = torch.empty_strided(q.shape, q.stride(), dtype=q.dtype, device="meta")
    sums = empty((*q.shape[:3], 1), torch.float32)
    seed, offset = empty((), torch.int64), empty((), torch.int64)
    return out, sums, None, None, q.shape[2], k.shape[2], seed, offset, None
