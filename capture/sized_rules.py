"""Sizes and strides of results of ops on tensors whose sizes are known only at run time, where shapes.py has no rule or meta kernels of C++
know.  A rule returns None where it is not sure: then the sizes are settled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes import (
    alike_shapes,
    broadcast,
    empty,
    is_dense,
    iterator_strides,
    sized_rule,
    wrap_dim,
)
from frameloom.capture.shapes_at_hints import as_at_hints
from frameloom.capture.sized import empty_strided, strides_of
from frameloom.capture.view_rules import expand
from frameloom.ir.size import Int, Size, late_in, same

aten = torch.ops.aten


def dense_like(x: Any, dtype: torch.dtype | None = None) -> Any:
    """As `empty_like` lays it out: without gaps, the dimensions in the order that they have in `x`."""
    dtype = dtype or x.dtype
    if is_dense(x):
        return empty_strided(x.shape, x.stride(), dtype)
    return empty_strided(x.shape, iterator_strides(tuple(x.shape), [x], False), dtype)


# --- copies and fresh tensors


@sized_rule(aten.clone.default, aten._to_copy.default)
def _copy(
    func: Any, x: Any, *, dtype: Any = None, memory_format: Any = None, **options: Any
) -> Any:
    dtype = dtype or x.dtype
    if memory_format in (None, torch.preserve_format):
        return dense_like(x, dtype)
    return empty(x.shape, dtype) if memory_format is torch.contiguous_format else None


@sized_rule(
    aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.rand_like.default,
    aten.randn_like.default,
)  # fmt: skip
def _fresh_like(
    func: Any,
    x: Any,
    *args: Any,
    dtype: Any = None,
    layout: Any = None,
    memory_format: Any = None,
    **options: Any,
) -> Any:
    if layout not in (None, torch.strided):
        return None
    if memory_format is torch.contiguous_format:
        return empty(x.shape, dtype or x.dtype)
    return dense_like(x, dtype) if memory_format in (None, torch.preserve_format) else None


@sized_rule(
    aten.empty.memory_format, aten.zeros.default, aten.ones.default, aten.rand.default, aten.randn.default,
)  # fmt: skip
def _fresh(
    func: Any,
    shape: Sequence[Int],
    *,
    dtype: Any = None,
    layout: Any = None,
    memory_format: Any = None,
    **options: Any,
) -> Any:
    if layout not in (None, torch.strided) or memory_format not in (None, torch.contiguous_format):
        return None
    return empty(list(shape), dtype or torch.get_default_dtype())


@sized_rule(aten.empty_strided.default)
def _empty_strided(
    func: Any, shape: Sequence[Int], strides: Sequence[Int], *, dtype: Any = None, **options: Any
) -> Any:
    return empty_strided(list(shape), list(strides), dtype or torch.get_default_dtype())


@sized_rule(aten.full.default)
def _full(
    func: Any,
    shape: Sequence[Int],
    value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    **options: Any,
) -> Any:
    if isinstance(value, Size):
        dtype = dtype or torch.int64
    elif dtype is None:
        dtype = torch.full((), value).dtype
    return empty(list(shape), dtype) if layout in (None, torch.strided) else None


@sized_rule(aten.new_empty.default, aten.new_zeros.default, aten.new_ones.default)
def _new(func: Any, x: Any, shape: Sequence[Int], *, dtype: Any = None, **options: Any) -> Any:
    return empty(list(shape), dtype or x.dtype)


@sized_rule(aten.new_full.default)
def _new_full(
    func: Any, x: Any, shape: Sequence[Int], value: Any, *, dtype: Any = None, **options: Any
) -> Any:
    return empty(list(shape), dtype or x.dtype)


@sized_rule(aten.arange.default, aten.arange.start, aten.arange.start_step)
def _arange(func: Any, *args: Any, dtype: Any = None, **options: Any) -> Any:
    if any(isinstance(a, float | bool) for a in args):
        return None
    start, end = (0, args[0]) if len(args) == 1 else args[:2]
    step = args[2] if len(args) > 2 else 1
    if isinstance(step, Size) or step == 0:
        return None
    count = (end - start + step - (1 if step > 0 else -1)) // step
    return empty([count], dtype or torch.int64) if count >= 0 else None


@sized_rule(aten.eye.default, aten.eye.m)
def _eye(func: Any, rows: Int, columns: Any = None, *, dtype: Any = None, **options: Any) -> Any:
    return empty([rows, rows if columns is None else columns], dtype or torch.get_default_dtype())


# --- reductions


def _dims(dims: Any, rank: int) -> set[int]:
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return set(range(rank))
    return {wrap_dim(d, rank) for d in ([dims] if isinstance(dims, int) else dims)}


def reduced(x: Any, dims: set[int], keepdim: bool, dtype: torch.dtype) -> Any:
    """As TensorIterator lays it out: in the order of what is left of the strides."""
    kept = [d for d in range(x.dim()) if d not in dims]
    if keepdim:
        shape = [1 if d in dims else n for d, n in enumerate(x.shape)]
    else:
        shape = [x.shape[d] for d in kept]
    if x.is_contiguous() or not kept:
        return empty(shape, dtype)
    if keepdim:
        return None
    strides = iterator_strides(tuple(x.shape), [x], False)
    left = _squeezed(strides, x.shape, dims)
    return empty_strided(shape, [left[d] for d in kept], dtype)


def _squeezed(strides: Sequence[Int], shape: Sequence[Int], gone: set[int]) -> list[Int]:
    """Dense strides in the same order without the dimensions that are gone."""
    by_stride = sorted(range(len(shape)), key=lambda d: _hint(strides[d]))
    result: list[Int] = [0] * len(shape)
    step: Int = 1
    for d in by_stride:
        if d not in gone:
            result[d] = step
            step = step * shape[d]
    return result


def _hint(n: Int) -> int:
    return n.hint if isinstance(n, Size) else n


@sized_rule(
    aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.any.dim, aten.all.dim, aten.any.dims, aten.all.dims,
    aten.nansum.default, aten.logsumexp.default,
)  # fmt: skip
def _reduction(
    func: Any, x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    name = func._schema.name
    chosen = _dims(dims, x.dim())
    if name in ("aten::amax", "aten::amin") and not all(x.shape[d] > 0 for d in chosen):
        return None
    if dtype is None:
        dtype = _dtype_of_fold(name, x.dtype)
    return None if dtype is None else reduced(x, chosen, keepdim, dtype)


def _dtype_of_fold(name: str, dtype: torch.dtype) -> torch.dtype | None:
    if name in ("aten::any", "aten::all"):
        return torch.uint8 if dtype is torch.uint8 else torch.bool
    if name in ("aten::sum", "aten::nansum", "aten::prod"):
        return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64
    if name in ("aten::mean", "aten::logsumexp") and not (
        dtype.is_floating_point or dtype.is_complex
    ):
        return None
    return dtype


@sized_rule(
    aten.sum.default, aten.mean.default, aten.prod.default, aten.any.default, aten.all.default
)
def _whole(func: Any, x: Any, *, dtype: Any = None) -> Any:
    dtype = dtype or _dtype_of_fold(func._schema.name, x.dtype)
    return None if dtype is None else empty((), dtype)


@sized_rule(aten.max.default, aten.min.default)
def _extreme(func: Any, x: Any) -> Any:
    return empty((), x.dtype) if x.numel() > 0 else None


@sized_rule(aten.prod.dim_int, aten.linalg_vector_norm.default)
def _along(func: Any, x: Any, *args: Any, dtype: Any = None) -> Any:
    if func is aten.prod.dim_int:
        dims, keepdim = args[0], len(args) > 1 and args[1]
        dtype = dtype or _dtype_of_fold("aten::prod", x.dtype)
    else:
        dims, keepdim = args[1] if len(args) > 1 else None, len(args) > 2 and args[2]
        dtype = dtype or x.dtype
        if not x.dtype.is_floating_point:
            return None
    return reduced(x, _dims(dims, x.dim()), bool(keepdim), dtype)


@sized_rule(aten.norm.ScalarOpt_dim)
def _norm(func: Any, x: Any, p: Any, dims: Any, keepdim: bool = False) -> Any:
    return reduced(x, _dims(dims, x.dim()), keepdim, x.dtype) if x.dtype.is_floating_point else None


@sized_rule(aten.var.correction, aten.std.correction)
def _var(
    func: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    chosen = _dims(dim, x.dim())
    if not x.dtype.is_floating_point or _warns(x, chosen, correction):
        return None
    return reduced(x, chosen, keepdim, x.dtype)


def _warns(x: Any, dims: set[int], correction: Any) -> bool:
    """Of too few elements."""
    count = math.prod(x.shape[d] for d in dims)
    return bool(late_in(count)) and not count > (1 if correction is None else correction)


@sized_rule(aten.var_mean.correction, aten.std_mean.correction)
def _var_mean(
    func: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    if not x.dtype.is_floating_point or _warns(x, _dims(dim, x.dim()), correction):
        return None
    return tuple(reduced(x, _dims(dim, x.dim()), keepdim, x.dtype) for _ in range(2))


@sized_rule(aten.argmax.default, aten.argmin.default)
def _arg_extreme(func: Any, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    if not x.numel() > 0:
        return None
    return reduced(x, _dims(dim, x.dim()), keepdim, torch.int64)


@sized_rule(aten.max.dim, aten.min.dim, aten.median.dim, aten.mode.default)
def _extremes(func: Any, x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    chosen = {wrap_dim(dim, x.dim())}
    if not all(x.shape[d] > 0 for d in chosen) or not x.is_contiguous():
        return None
    return reduced(x, chosen, keepdim, x.dtype), reduced(x, chosen, keepdim, torch.int64)


# --- along a dimension


@sized_rule(
    aten._softmax.default, aten._log_softmax.default, aten.tril.default, aten.triu.default, aten.cumsum.default, aten.cumprod.default,
    aten.logcumsumexp.default,
)  # fmt: skip
def _like_first(func: Any, x: Any, *args: Any, dtype: Any = None) -> Any:
    if any(a is True for a in args):
        return None
    cumulative = func in (aten.cumsum.default, aten.cumprod.default)
    if dtype is None and cumulative and not x.dtype.is_floating_point:
        dtype = torch.int64
    if x.is_contiguous():
        return empty(x.shape, dtype or x.dtype)
    if cumulative:
        return dense_like(x, dtype)
    return (
        empty(x.shape, x.dtype) if func in PLAINLY else as_at_hints(func, (x, *args), {}, [x.shape])
    )


PLAINLY = (aten.tril.default, aten.triu.default)


@sized_rule(aten.sort.default, aten.sort.stable)
def _sort(func: Any, x: Any, *args: Any, **options: Any) -> Any:
    return (dense_like(x), dense_like(x, torch.int64)) if is_dense(x) else None


@sized_rule(aten.topk.default)
def _topk(
    func: Any, x: Any, k: Int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    dim = wrap_dim(dim, x.dim())
    if not x.dim() or k < 0 or k > x.shape[dim]:
        return None
    shape = [k if d == dim else n for d, n in enumerate(x.shape)]
    return empty(shape, x.dtype), empty(shape, torch.int64)


@sized_rule(aten.index_select.default)
def _index_select(func: Any, x: Any, dim: int, index: Any) -> Any:
    dim = wrap_dim(dim, x.dim())
    if index.dim() != 1 or not x.is_contiguous():
        return None
    return empty([index.shape[0] if d == dim else n for d, n in enumerate(x.shape)], x.dtype)


@sized_rule(aten.gather.default)
def _gather(func: Any, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    return empty(index.shape, x.dtype) if index.dim() == x.dim() and index.is_contiguous() else None


@sized_rule(
    aten.scatter.src, aten.scatter.value, aten.scatter_add.default, aten.index_put.default, aten.index_add.default, aten.index_copy.default,
    aten.index_fill.int_Scalar, aten.select_scatter.default, aten.slice_scatter.default, aten.masked_scatter.default,
)  # fmt: skip
def _changed(func: Any, x: Any, *args: Any, **options: Any) -> Any:
    if func is aten.index_put.default:
        return dense_like(x)
    return empty(x.shape, x.dtype) if x.is_contiguous() else None


@sized_rule(aten.embedding.default)
def _embedding(func: Any, weight: Any, indices: Any, *rest: Any) -> Any:
    return empty([*indices.shape, weight.shape[1]], weight.dtype) if weight.dim() == 2 else None


@sized_rule(aten.broadcast_tensors.default)
def _broadcast_tensors(func: Any, tensors: Sequence[Any]) -> Any:
    shape = broadcast(*(t.shape for t in tensors))
    if shape is None:
        return None
    return [expand(None, t, shape) for t in tensors]


@sized_rule(aten.repeat.default)
def _repeat(func: Any, x: Any, times: Sequence[Int]) -> Any:
    lead = len(times) - x.dim()
    if lead < 0:
        return None
    return empty(
        [t * (x.shape[d - lead] if d >= lead else 1) for d, t in enumerate(times)], x.dtype
    )


@sized_rule(aten.constant_pad_nd.default)
def _pad(func: Any, x: Any, pads: Sequence[Int], value: Any = 0) -> Any:
    shape = list(x.shape)
    for k in range(len(pads) // 2):
        d = x.dim() - 1 - k
        shape[d] = shape[d] + pads[2 * k] + pads[2 * k + 1]
        if not shape[d] >= 0:
            return None
    return empty(shape, x.dtype) if x.is_contiguous() else None


@sized_rule(aten.where.self)
def _where(func: Any, condition: Any, a: Any, b: Any) -> Any:
    if a.dtype is not b.dtype:
        return None
    shape = broadcast(condition.shape, a.shape, b.shape)
    if shape is None:
        return None
    tensors = [condition, a, b]
    alike = all(alike_shapes(t.shape, shape) for t in tensors)
    return empty_strided(shape, iterator_strides(shape, tensors, alike), a.dtype)


# --- images


def _pooled(
    n: Int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool
) -> Int | None:
    """Source: `pooling_output_shape` of ATen's Pool.h."""
    reach = n + 2 * padding - dilation * (kernel - 1) - 1
    if not reach >= 0:
        return None
    if not ceil:
        return reach // stride + 1
    out = (reach + stride - 1) // stride + 1
    return out - 1 if (out - 1) * stride >= n + padding else out


def _pair(value: Any, otherwise: Any = None) -> tuple[int, int]:
    value = otherwise if not isinstance(value, int) and not len(value) else value
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


@sized_rule(aten.max_pool2d_with_indices.default, aten.avg_pool2d.default)
def _pool2d(
    func: Any, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, *rest: Any, **options: Any
) -> Any:
    average = func is aten.avg_pool2d.default
    if not x.is_contiguous() or options:
        return None
    dilation = _pair(1 if average or not rest else rest[0])
    ceil = bool(rest[0 if average else 1]) if len(rest) > (0 if average else 1) else False
    kernel = _pair(kernel)
    stride, padding = _pair(stride, kernel), _pair(padding)
    sizes = [
        _pooled(x.shape[k - 2], kernel[k], stride[k], padding[k], dilation[k], ceil)
        for k in range(2)
    ]
    if None in sizes:
        return None
    shape = [*x.shape[:-2], *sizes]
    return empty(shape, x.dtype) if average else (empty(shape, x.dtype), empty(shape, torch.int64))


@sized_rule(aten._adaptive_avg_pool2d.default)
def _adaptive(func: Any, x: Any, size: Sequence[Int]) -> Any:
    return empty([*x.shape[:-2], *size], x.dtype) if x.is_contiguous() else None


@sized_rule(aten.upsample_nearest2d.default, aten.upsample_bilinear2d.default)
def _upsample(func: Any, x: Any, size: Sequence[Int], *rest: Any) -> Any:
    return empty([*x.shape[:2], *size], x.dtype) if x.is_contiguous() else None


@sized_rule(aten.grid_sampler_2d.default)
def _grid_sampler(func: Any, x: Any, grid: Any, *rest: Any) -> Any:
    return empty([*x.shape[:2], *grid.shape[1:3]], x.dtype) if x.is_contiguous() else None


@sized_rule(aten.native_group_norm.default)
def _group_norm(
    func: Any, x: Any, weight: Any, bias: Any, n: Int, c: Int, hw: Int, groups: int, eps: float
) -> Any:
    if not x.is_contiguous() or any(p is not None and p.dtype != x.dtype for p in (weight, bias)):
        return None
    return empty(x.shape, x.dtype), empty([n, groups], x.dtype), empty([n, groups], x.dtype)


@sized_rule(aten._native_batch_norm_legit_no_training.default)
def _batch_norm(func: Any, x: Any, *rest: Any) -> Any:
    plain = x.is_contiguous() and all(p is None or p.dtype == x.dtype for p in rest[:4])
    return (empty(x.shape, x.dtype), empty(0, x.dtype), empty(0, x.dtype)) if plain else None


@sized_rule(aten.native_dropout.default)
def _dropout(func: Any, x: Any, p: float, train: bool | None) -> Any:
    return dense_like(x), dense_like(x, torch.bool)


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
    from frameloom.capture.shape_rules import _attention_keeps_layout

    if not _attention_keeps_layout() or q.dim() != 4 or not same(q.shape[3], v.shape[3]):
        return None
    b, h, n, _ = q.shape
    statistics = torch.float32 if q.dtype in (torch.bfloat16, torch.float16) else q.dtype
    sums = strides_of([b, n, h])
    return dense_like(q), empty_strided([b, h, n], [sums[0], sums[2], sums[1]], statistics)
