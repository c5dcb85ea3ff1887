"""Rules for ops on tensors with symbolic sizes, if shapes/registry.py has no rule for the op because its C++
meta kernel is fast. A rule returns None if it is not sure: then the sizes are specialized."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.common_rules import check_rank
from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.registry import (
    broadcast,
    dense_like,
    empty,
    is_dense,
    iterator_strides,
    note_not_1,
    same_sizes,
    sized_rule,
    wrap_dim,
    wrap_dims,
)
from frameloom.capture.tensors.sized import dense_strides, empty_strided, has_channels_last_strides
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.expr import Int, Size, hint_of

aten = torch.ops.aten


def as_suggested(x: Any, shape: Sequence[Int], dtype: torch.dtype | None = None) -> Any:
    """Returns a fresh tensor in the memory format that `x` suggests."""
    return fresh(shape, dtype or x.dtype, has_channels_last_strides(x))


def fresh(shape: Sequence[Int], dtype: torch.dtype, channels_last: bool) -> Any:
    if not channels_last:
        return empty(shape, dtype)
    order = (1, *range(len(shape) - 1, 1, -1), 0)
    return empty_strided(shape, dense_strides(shape, order), dtype)


# --- copies and fresh tensors


@sized_rule(aten.clone.default, aten._to_copy.default)
def _copy(
    func: Any, x: Any, *, dtype: Any = None, memory_format: Any = None, **options: Any
) -> Any:
    dtype = dtype or x.dtype
    if memory_format in (None, torch.preserve_format):
        return dense_like(x, dtype)
    return empty(x.shape, dtype) if memory_format is torch.contiguous_format else None


@sized_rule(aten.flip.default)
def _flip(func: Any, x: Any, dims: Sequence[int]) -> Any:
    wrap_dims(dims, x.dim())
    return dense_like(x)


@sized_rule(aten.fill.Scalar)
def _filled(func: Any, x: Any, value: Any) -> Any:
    return dense_like(x)


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


def _fresh_of(shape: Sequence[Int], dtype: torch.dtype) -> Any:
    """Returns a fresh tensor; None if a size is negative, which PyTorch refuses."""
    return None if any(n < 0 for n in shape) else empty(list(shape), dtype)


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
    return _fresh_of(shape, dtype or torch.get_default_dtype())


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
    return _fresh_of(shape, dtype) if layout in (None, torch.strided) else None


@sized_rule(aten.new_empty.default, aten.new_zeros.default, aten.new_ones.default)
def _new(func: Any, x: Any, shape: Sequence[Int], *, dtype: Any = None, **options: Any) -> Any:
    return _fresh_of(shape, dtype or x.dtype)


@sized_rule(aten.new_full.default)
def _new_full(
    func: Any, x: Any, shape: Sequence[Int], value: Any, *, dtype: Any = None, **options: Any
) -> Any:
    return _fresh_of(shape, dtype or x.dtype)


@sized_rule(aten.arange.default, aten.arange.start, aten.arange.start_step)
def _arange(func: Any, *args: Any, dtype: Any = None, **options: Any) -> Any:
    if any(isinstance(a, float | bool) for a in args):
        return None
    start, end = (0, args[0]) if len(args) == 1 else args[:2]
    step = args[2] if len(args) > 2 else 1
    if step == 0:
        return None
    count = (end - start + step - (1 if step > 0 else -1)) // step
    return empty([count], dtype or torch.int64) if count >= 0 else None


@sized_rule(aten.linspace.default)
def _linspace(
    func: Any, start: Any, end: Any, steps: Int, *, dtype: Any = None, **options: Any
) -> Any:
    return _fresh_of([steps], dtype or torch.get_default_dtype())


@sized_rule(aten.histc.default)
def _histc(func: Any, x: Any, bins: Int, *rest: Any) -> Any:
    return empty([bins], x.dtype) if bins > 0 else None


@sized_rule(aten.eye.default, aten.eye.m)
def _eye(func: Any, rows: Int, columns: Any = None, *, dtype: Any = None, **options: Any) -> Any:
    shape = [rows, rows if columns is None else columns]
    return _fresh_of(shape, dtype or torch.get_default_dtype())


# --- reductions


def _dims(dims: Any, rank: int) -> set[int]:
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return set(range(rank))
    return wrap_dims([dims] if isinstance(dims, int) else dims, rank)


@functools.cache
def folds_keep_order() -> bool:
    """Whether reductions give their results the stride order of the operand; newer PyTorch makes them
    contiguous."""
    with torch.inference_mode():
        return not torch.ones(2, 3, 4, device="cpu").permute(2, 0, 1).sum(-1).is_contiguous()


def reduced(x: Any, dims: set[int], keepdim: bool, dtype: torch.dtype) -> Any:
    """Returns the result of a reduction: contiguous, or with the kept strides in their order."""
    kept = [d for d in range(x.dim()) if d not in dims]
    if keepdim:
        shape = [1 if d in dims else n for d, n in enumerate(x.shape)]
    else:
        shape = [x.shape[d] for d in kept]
    if not folds_keep_order() or x.is_contiguous() or not kept:
        return empty(shape, dtype)
    if keepdim:
        return None
    strides = iterator_strides(tuple(x.shape), [x], False)
    left = _squeezed(strides, x.shape, dims)
    return empty_strided(shape, [left[d] for d in kept], dtype)


def _squeezed(strides: Sequence[Int], shape: Sequence[Int], gone: set[int]) -> list[Int]:
    """Returns dense strides in the same order, without the dimensions in `gone`."""
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
    if func in (aten.any.dims, aten.all.dims) and dims is not None and not len(dims):
        return None  # reduces no dimension, unlike other ops
    chosen = _dims(dims, x.dim())
    if name in ("aten::amax", "aten::amin") and not all(x.shape[d] > 0 for d in chosen):
        return None
    given = dtype is not None
    if not given:
        dtype = _dtype_of_fold(name, x.dtype)
    if dtype is None:
        return None
    result = reduced(x, chosen, keepdim, dtype)
    if result is None:
        shape = [1 if d in chosen else n for d, n in enumerate(x.shape)]
        result = with_hint_layout(
            func, (x, dims, keepdim), {"dtype": dtype} if given else {}, [shape]
        )
    return result


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
        order = args[0] if args else 2
        has_identity = order >= 0 and order != math.inf  # `order` may be a symbolic size
        lengths = [x.shape[d] for d in _dims(dims, x.dim())]
        if not x.dtype.is_floating_point or not (has_identity or all(n > 0 for n in lengths)):
            return None
    return reduced(x, _dims(dims, x.dim()), bool(keepdim), dtype)


@sized_rule(aten.norm.ScalarOpt_dim)
def _norm(func: Any, x: Any, p: Any, dims: Any, keepdim: bool = False) -> Any:
    return reduced(x, _dims(dims, x.dim()), keepdim, x.dtype) if x.dtype.is_floating_point else None


@sized_rule(aten.var.correction, aten.std.correction)
def _var(
    func: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    if not x.dtype.is_floating_point:
        return None
    return reduced(x, _dims(dim, x.dim()), keepdim, x.dtype)


@sized_rule(aten.var_mean.correction, aten.std_mean.correction)
def _var_mean(
    func: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    if not x.dtype.is_floating_point:
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
    check_rank(func, x, args)
    if any(a is True for a in args):
        return None
    cumulative = func in (aten.cumsum.default, aten.cumprod.default)
    is_integral = not (x.dtype.is_floating_point or x.dtype.is_complex)
    if dtype is None and cumulative and is_integral:
        dtype = torch.int64
    if x.is_contiguous():
        return empty(x.shape, dtype or x.dtype)
    if func in PLAINLY:
        return empty(x.shape, x.dtype)
    return with_hint_layout(func, (x, *args), {} if dtype is None else {"dtype": dtype}, [x.shape])


PLAINLY = (aten.tril.default, aten.triu.default)


@sized_rule(aten.sort.default, aten.sort.stable)
def _sort(func: Any, x: Any, *args: Any, **options: Any) -> Any:
    dim = options.get("dim", next((a for a in args if not isinstance(a, bool)), -1))
    wrap_dim(dim, x.dim())
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


@sized_rule(aten.embedding.default)
def _embedding(func: Any, weight: Any, indices: Any, *rest: Any) -> Any:
    return empty([*indices.shape, weight.shape[1]], weight.dtype) if weight.dim() == 2 else None


@sized_rule(aten.repeat.default)
def _repeat(func: Any, x: Any, times: Sequence[Int]) -> Any:
    lead = len(times) - x.dim()
    if lead < 0 or any(n < 0 for n in times):
        return None
    return empty(
        [t * (x.shape[d - lead] if d >= lead else 1) for d, t in enumerate(times)], x.dtype
    )


@sized_rule(aten.constant_pad_nd.default)
def _pad(func: Any, x: Any, pads: Sequence[Int], value: Any = 0) -> Any:
    shape = list(x.shape)
    for k in range(len(pads) // 2):
        d = x.dim() - 1 - k
        pair = pads[2 * k : 2 * k + 2]
        left = shape[d] + sum(n for n in pair if hint_of(n) < 0 and n < 0)  # before it grows
        shape[d] = shape[d] + pair[0] + pair[1]
        if not (left >= 0 and shape[d] >= 0):
            return None
    known = [p for p in pads if not unbacked_in(p)]
    grows = any(p > 0 for p in known)
    if not grows and len(known) == len(pads):  # a slice, copied with its strides
        note_not_1(shape, is_plain=False)
        return dense_like(empty_strided(shape, x.stride(), x.dtype))
    return as_suggested(x, shape) if grows or x.is_contiguous() or x.dim() == 1 else None


@sized_rule(aten.trace.default)
def _trace(func: Any, x: Any) -> Any:
    return empty((), _dtype_of_fold("aten::sum", x.dtype)) if x.dim() == 2 else None


@sized_rule(aten.cummax.default, aten.cummin.default)
def _cumulative_extreme(func: Any, x: Any, dim: int) -> Any:
    wrap_dim(dim, x.dim())
    return empty(x.shape, x.dtype), empty(x.shape, torch.int64)


@sized_rule(aten.kthvalue.default)
def _kth(func: Any, x: Any, k: Int, dim: int = -1, keepdim: bool = False) -> Any:
    chosen = {wrap_dim(dim, x.dim())}
    if not x.is_contiguous() or any(k < 1 or k > x.shape[d] for d in chosen):
        return None
    return reduced(x, chosen, keepdim, x.dtype), reduced(x, chosen, keepdim, torch.int64)


@sized_rule(aten.searchsorted.Tensor, aten.bucketize.Tensor)
def _searched(func: Any, a: Any, b: Any, *, out_int32: bool = False, **options: Any) -> Any:
    boundaries, x = (a, b) if func is aten.searchsorted.Tensor else (b, a)
    if boundaries.dim() != 1:
        return None
    return empty(x.shape, torch.int32 if out_int32 else torch.int64)


@sized_rule(aten.polar.default, aten.complex.default)
def _complex(func: Any, a: Any, b: Any) -> Any:
    shape = broadcast(a.shape, b.shape)
    if shape is None or a.dtype is not b.dtype:
        return None
    same_shape = same_sizes(a.shape, shape) and same_sizes(b.shape, shape)
    strides = iterator_strides(tuple(shape), [a, b], same_shape)
    return empty_strided(shape, strides, a.dtype.to_complex())


@sized_rule(aten._cdist_forward.default)
def _cdist(func: Any, a: Any, b: Any, *rest: Any) -> Any:
    lead = broadcast(a.shape[:-2], b.shape[:-2])
    if lead is None or a.shape[-1] != b.shape[-1]:
        return None
    return empty([*lead, a.shape[-2], b.shape[-2]], a.dtype)
