"""Rules of shapes/registry.py for reductions, and for what runs along a dimension."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.iteration import (
    dense_like,
    empty,
    is_dense,
    is_surely_contiguous,
    iterator_strides,
    wrap_dim,
    wrap_dims,
)
from frameloom.capture.shapes.registry import KEEPING, layout, rule, sized_rule
from frameloom.capture.tensors.sized import SizedMeta, empty_strided, has_sizes
from frameloom.ir.symbolic.expr import Int, hint_of

aten = torch.ops.aten
KEEPING |= {
    aten.sum.dim_IntList, aten.sum.default, aten.mean.dim, aten.mean.default, aten._softmax.default, aten._log_softmax.default,
}  # fmt: skip


OF_NONE = (aten.any.dims, aten.all.dims)  # an empty list means no dimension, unlike for other ops
WITH_MEANS = (aten.var_mean.correction, aten.std_mean.correction)
EXTREMES = (aten.amax.default, aten.amin.default)  # have no value for no elements


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


def _reduced(x: Any, dims: set[int], keepdim: bool, dtype: torch.dtype) -> Any:
    """Returns the result of a reduction: contiguous, or with the kept strides in their order."""
    if keepdim:
        shape = [1 if d in dims else n for d, n in enumerate(x.shape)]
    else:
        shape = [n for d, n in enumerate(x.shape) if d not in dims]
    if len(dims) == x.dim() or not folds_keep_order() or x.is_contiguous():
        return empty(shape, dtype)
    if keepdim or not isinstance(x, SizedMeta):
        return None
    strides = iterator_strides(tuple(x.shape), [x], False)
    left = _squeezed(strides, x.shape, dims)
    return empty_strided(shape, [n for d, n in enumerate(left) if d not in dims], dtype)


def _squeezed(strides: Sequence[Int], shape: Sequence[Int], gone: set[int]) -> list[Int]:
    """Returns dense strides in the same order, without the dimensions in `gone`."""
    by_stride = sorted(range(len(shape)), key=lambda d: hint_of(strides[d]))
    result: list[Int] = [0] * len(shape)
    step: Int = 1
    for d in by_stride:
        if d not in gone:
            result[d] = step
            step = step * shape[d]
    return result


def _dtype_of_fold(func: Any, dtype: torch.dtype) -> torch.dtype | None:
    """Returns the dtype of the result; None if the op refuses the operand's."""
    name = func._opname
    if name in ("any", "all"):
        return torch.uint8 if dtype is torch.uint8 else torch.bool
    if dtype.is_floating_point or dtype.is_complex:
        return dtype
    if name in ("sum", "nansum", "prod", "trace", "cumsum", "cumprod"):
        return torch.int64
    return None if name in ("mean", "logsumexp") else dtype


@rule(
    aten.sum.dim_IntList, aten.mean.dim, aten.any.dim, aten.all.dim, aten.nansum.default, *OF_NONE,
)  # fmt: skip
@sized_rule(*EXTREMES, aten.logsumexp.default, aten.prod.dim_int)
def _reduction(
    func: Any, x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    given = {} if dtype is None else {"dtype": dtype}
    dtype = dtype or _dtype_of_fold(func, x.dtype)
    if dtype is None:
        return None
    if func in OF_NONE and dims is not None and not len(dims):
        return empty(x.shape, dtype)
    chosen = _dims(dims, x.dim())
    if func in EXTREMES and not all(x.shape[d] > 0 for d in chosen):
        return None
    result = _reduced(x, chosen, keepdim, dtype)
    if result is None:
        shape = [1 if d in chosen else n for d, n in enumerate(x.shape)]
        result = with_hint_layout(func, (x, dims, keepdim), given, [shape])
    return result


@rule(aten.mean.default, aten.any.default, aten.all.default)
@sized_rule(aten.sum.default, aten.prod.default)
def _whole(func: Any, x: Any, *, dtype: Any = None) -> Any:
    dtype = dtype or _dtype_of_fold(func, x.dtype)
    return None if dtype is None else empty((), dtype)


@sized_rule(aten.trace.default)
def _trace(func: Any, x: Any) -> Any:
    return _whole(func, x) if x.dim() == 2 else None


@rule(aten._is_all_true.default, aten._is_any_true.default)
def _truth(func: Any, x: torch.Tensor) -> Any:
    return empty((), torch.bool)


@sized_rule(aten.max.default, aten.min.default)
def _extreme(func: Any, x: Any) -> Any:
    return empty((), x.dtype) if x.numel() > 0 else None


@rule(aten.linalg_vector_norm.default)
def _vector_norm(
    func: Any, x: Any, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    chosen = _dims(dims, x.dim())
    has_identity = order >= 0 and order != math.inf  # `order` may be a symbolic size
    if not x.dtype.is_floating_point or not (has_identity or all(x.shape[d] > 0 for d in chosen)):
        return None
    return _reduced(x, chosen, keepdim, dtype or x.dtype)


@sized_rule(aten.norm.ScalarOpt_dim)
def _norm(func: Any, x: Any, p: Any, dims: Any, keepdim: bool = False) -> Any:
    if not x.dtype.is_floating_point:
        return None
    return _reduced(x, _dims(dims, x.dim()), keepdim, x.dtype)


@rule(aten.var.correction, aten.std.correction)
@sized_rule(*WITH_MEANS)
def _var(
    func: Any, x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    if not x.dtype.is_floating_point:
        return None
    chosen = _dims(dims, x.dim())
    result = _reduced(x, chosen, keepdim, x.dtype)
    if result is None or func not in WITH_MEANS:
        return result
    return result, _reduced(x, chosen, keepdim, x.dtype)


@layout(
    aten.sum.dim_IntList, aten.prod.dim_int, aten.amax.default, aten.amin.default, aten.aminmax.default, aten.var.correction,
    aten.std.correction, aten.var_mean.correction, aten.std_mean.correction, devices=("cpu",),
)  # fmt: skip
def _fold(meta: Any, *args: Any, **options: Any) -> Any:
    """A result without elements is a fresh tensor; meta kernels give a kept dimension a stride of 0."""
    if isinstance(meta, tuple):
        return tuple(map(_fold, meta))
    if has_sizes(meta.shape) or meta.numel() or folds_keep_order():
        return meta
    return empty(meta.shape, meta.dtype)


@sized_rule(aten.argmax.default, aten.argmin.default)
def _arg_extreme(func: Any, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _reduced(x, _dims(dim, x.dim()), keepdim, torch.int64) if x.numel() > 0 else None


def _with_place(x: Any, dim: int, keepdim: bool) -> Any:
    """Returns one element along a dimension, and its place."""
    if not isinstance(x, SizedMeta) or not is_surely_contiguous(x):
        return None
    return _reduced(x, {dim}, keepdim, x.dtype), _reduced(x, {dim}, keepdim, torch.int64)


@rule(aten.max.dim, aten.min.dim, aten.median.dim, aten.nanmedian.dim, aten.mode.default)
def _extremes(func: Any, x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """Raises what the kernels raise, because PyTorch's own meta functions do not check it."""
    dim = wrap_dim(dim, x.dim())
    if x.dim() and not x.shape[dim] > 0:
        raise IndexError(f"Expected reduction dim {dim} to have non-zero size.")
    return _with_place(x, dim, keepdim)


@sized_rule(aten.kthvalue.default)
def _kth(func: Any, x: Any, k: Int, dim: int = -1, keepdim: bool = False) -> Any:
    dim = wrap_dim(dim, x.dim())
    results = _with_place(x, dim, keepdim)
    return None if results is None or k < 1 or k > x.shape[dim] else results


# --- along a dimension

TRIANGLES = (aten.tril.default, aten.triu.default)


@rule(
    aten._softmax.default, aten._log_softmax.default, aten.cumsum.default, aten.cumprod.default, *TRIANGLES,
)  # fmt: skip
@sized_rule(aten.logcumsumexp.default)
def _along(func: Any, x: Any, *args: Any, dtype: Any = None) -> Any:
    """Raises if `x` lacks the dimensions that the op works along; some meta kernels do not check this."""
    if func in TRIANGLES and x.dim() < 2:
        raise RuntimeError("input tensor must have at least 2 dimensions")
    if func not in TRIANGLES:
        wrap_dim(args[0], x.dim())
    if any(a is True for a in args):
        return None
    given = {} if dtype is None else {"dtype": dtype}
    dtype = dtype or _dtype_of_fold(func, x.dtype)
    if x.is_contiguous() or func in TRIANGLES:
        return empty(x.shape, dtype)
    return with_hint_layout(func, (x, *args), given, [x.shape])


@sized_rule(aten.cummax.default, aten.cummin.default)
def _cumulative_extreme(func: Any, x: Any, dim: int) -> Any:
    wrap_dim(dim, x.dim())
    return empty(x.shape, x.dtype), empty(x.shape, torch.int64)


@rule(aten.sort.default, aten.sort.stable)
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
