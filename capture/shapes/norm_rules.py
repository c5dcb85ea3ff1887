"""Rules for normalization, dropout, recurrent layers and attention, on tensors with symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.dynamic_rules import as_suggested
from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.layer_rules import (
    attention_keeps_layout,
    check_channels,
    native_layer_norm,
)
from frameloom.capture.shapes.registry import broadcast, dense_like, empty, sized_rule
from frameloom.capture.tensors.sized import assume_elements, empty_strided, strides_of
from frameloom.ir.symbolic.compare import equal, same
from frameloom.ir.symbolic.expr import Int

aten = torch.ops.aten


@sized_rule(aten.native_group_norm.default)
def _group_norm(
    func: Any, x: Any, weight: Any, bias: Any, n: Int, c: Int, hw: Int, groups: int, eps: float
) -> Any:
    check_channels(c, weight, bias)
    if not x.is_contiguous() or any(p is not None and p.dtype != x.dtype for p in (weight, bias)):
        return None
    return empty(x.shape, x.dtype), empty([n, groups], x.dtype), empty([n, groups], x.dtype)


@sized_rule(aten.native_layer_norm.default)
def _layer_norm(
    func: Any, x: Any, normalized: Sequence[Int], weight: Any, bias: Any, eps: float
) -> Any:
    plain = native_layer_norm(func, x, normalized, weight, bias, eps)
    rank = len(normalized)
    if plain is not None or not 0 < rank <= x.dim():
        return plain
    if not all(map(same, x.shape[-rank:], normalized)):
        return None
    statistics = [*x.shape[:-rank], *([1] * rank)]
    given = (x, normalized, weight, bias, eps)
    return with_hint_layout(func, given, {}, [x.shape, statistics, statistics])


@sized_rule(aten._native_batch_norm_legit_no_training.default)
def _batch_norm(func: Any, x: Any, *rest: Any) -> Any:
    plain = all(p is None or p.dtype == x.dtype for p in rest[:4])
    out = as_suggested(x, x.shape)
    return (out, empty(0, x.dtype), empty(0, x.dtype)) if plain else None


@sized_rule(aten.native_dropout.default)
def _dropout(func: Any, x: Any, p: float, train: bool | None) -> Any:
    return dense_like(x), dense_like(x, torch.bool)


@sized_rule(aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input, aten.lstm.input)
def _recurrent(
    func: Any, x: Any, hidden: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool,
    batch_first: bool,
) -> Any:  # fmt: skip
    states = hidden if isinstance(hidden, list | tuple) else [hidden]
    length, batch = (1, 0) if batch_first else (0, 1)
    width = states[0].shape[-1] * (2 if both else 1)
    shape = [x.shape[length], x.shape[batch], width]
    out = empty(shape, x.dtype)
    if batch_first:
        strides = out.stride()
        out = empty_strided([shape[1], shape[0], width], [strides[1], strides[0], 1], x.dtype)
    return out, *(empty(s.shape, x.dtype) for s in states)


# --- attention


@sized_rule(aten.scaled_dot_product_attention.default)
def _attention(func: Any, q: Any, k: Any, v: Any, *rest: Any, **options: Any) -> Any:
    if min(q.dim(), k.dim(), v.dim()) < 2:
        return None
    if not same(q.shape[-1], k.shape[-1]) or not same(k.shape[-2], v.shape[-2]):
        return None
    heads = q.shape[:-2]
    if not options.get("enable_gqa"):
        heads = broadcast(*(t.shape[:-2] for t in (q, k, v)))
    return None if heads is None else empty([*heads, q.shape[-2], v.shape[-1]], q.dtype)


@sized_rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash_attention_cpu(func: Any, q: Any, k: Any, v: Any, *rest: Any, **options: Any) -> Any:
    assume_elements(q, k, v)  # the kernel divides by these sizes
    if not attention_keeps_layout() or q.dim() != 4 or not same(q.shape[3], v.shape[3]):
        return None
    if not equal(k.shape[2], v.shape[2]):
        return None  # the kernel does not check it: it reads and writes beyond the shorter one
    b, h, n, _ = q.shape
    statistics = torch.float32 if q.dtype in (torch.bfloat16, torch.float16) else q.dtype
    sums = strides_of([b, n, h])
    return dense_like(q), empty_strided([b, h, n], [sums[0], sums[2], sums[1]], statistics)
