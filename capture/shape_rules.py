"""Rules of shapes.py, op by op, for the ops that fill real programs.

A rule returns None wherever it is not sure (other layouts, promotion, wrong arguments): the meta kernel then answers, or
raises PyTorch's own error.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from frameloom.capture.device_layouts import HALVES
from frameloom.capture.shapes import (
    broadcast,
    empty,
    is_dense,
    iterator_strides,
    like,
    rule,
    wrap_dim,
)
from frameloom.ir.lower.foreach import PLAIN
from frameloom.ir.size import equal

aten = torch.ops.aten


def _reduced(x: torch.Tensor, dims: Any, keepdim: bool) -> list[int]:
    if isinstance(dims, int):
        dims = [dims]
    wrapped = {wrap_dim(d, x.dim()) for d in dims} if dims else set(range(x.dim()))
    if keepdim:
        return [1 if i in wrapped else n for i, n in enumerate(x.shape)]
    return [n for i, n in enumerate(x.shape) if i not in wrapped]


@rule(aten.mean.dim, aten.sum.dim_IntList)
def _reduction(
    func: Any,
    x: torch.Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    if not x.is_contiguous():
        return None  # the result keeps the order of x's strides
    if dtype is None:
        dtype = x.dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            if func is aten.mean.dim:
                return None
            dtype = torch.int64
    return empty(_reduced(x, dim, keepdim), dtype)


@rule(aten.mean.default)
def _mean(func: Any, x: torch.Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return _reduction(aten.mean.dim, x, None, dtype=dtype)


@rule(aten.one_hot.default)
def _one_hot(func: Any, index: torch.Tensor, classes: int) -> Any:
    return empty((*index.shape, classes), torch.int64)


@rule(aten._is_all_true.default, aten._is_any_true.default)
def _truth(func: Any, x: torch.Tensor) -> Any:
    return empty((), torch.bool)


@rule(aten.native_layer_norm.default)
def _native_layer_norm(
    func: Any, x: torch.Tensor, normalized: list[int], weight: Any, bias: Any, eps: float
) -> Any:
    rank = len(normalized)
    if not rank or list(x.shape[-rank:]) != list(normalized) or not x.is_contiguous():
        return None
    if any(p is not None and list(p.shape) != list(normalized) for p in (weight, bias)):
        return None
    # What the statistics are of is the device's affair (device_layouts.py).
    dtypes = {p.dtype for p in (weight, bias) if p is not None}
    if dtypes != {x.dtype} and dtypes and not (x.dtype in HALVES and dtypes == {torch.float32}):
        return None
    statistics = [*x.shape[:-rank], *([1] * rank)]
    return empty(x.shape, x.dtype), empty(statistics, x.dtype), empty(statistics, x.dtype)


@rule(aten._native_batch_norm_legit_no_training.default)
def _batch_norm_evaluation(func: Any, x: torch.Tensor, *rest: Any) -> Any:
    """The library keeps no statistics then, whatever its meta kernel says."""
    parameters = rest[:4]
    plain = x.is_contiguous() and all(p is None or p.dtype == x.dtype for p in parameters)
    out = empty(x.shape, x.dtype) if plain else func(x, *rest)[0]
    return out, empty(0, x.dtype), empty(0, x.dtype)


def _maybe_channels_last(t: torch.Tensor) -> bool:
    return not t.is_contiguous() and t.dim() in (4, 5) and t.stride(1) <= t.stride(-1)


@rule(aten.cat.default)
def _cat(func: Any, tensors: list[torch.Tensor], dim: int = 0) -> Any:
    first = tensors[0]
    if any(t.dim() != first.dim() or t.dtype != first.dtype for t in tensors):
        return None
    if any(_maybe_channels_last(t) for t in tensors):
        return None
    dim = wrap_dim(dim, first.dim())
    if not first.dim() or any(
        not equal(n, m) for t in tensors for i, (n, m) in enumerate(zip(t.shape, first.shape, strict=True)) if i != dim
    ):  # fmt: skip
        return None
    shape = list(first.shape)
    shape[dim] = sum(t.shape[dim] for t in tensors)
    return empty(shape, first.dtype)


def _same_dtype(*tensors: torch.Tensor) -> bool:
    return len({t.dtype for t in tensors}) == 1


@rule(aten.mm.default)
def _mm(func: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or not _same_dtype(a, b):
        return None
    return empty((a.shape[0], b.shape[1]), a.dtype)


@rule(aten.addmm.default)
def _addmm(
    func: Any,
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: Any = 1,
    alpha: Any = 1,
) -> Any:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or not _same_dtype(a, b, bias):
        return None
    shape = (a.shape[0], b.shape[1])
    if broadcast(bias.shape, shape) != shape:
        return None
    return empty(shape, a.dtype)


@rule(aten.bmm.default)
def _bmm(func: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dim() != 3 or b.dim() != 3 or not _same_dtype(a, b):
        return None
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        return None
    return empty((a.shape[0], a.shape[1], b.shape[2]), a.dtype)


@rule(aten.mv.default)
def _mv(func: Any, a: torch.Tensor, x: torch.Tensor) -> Any:
    if a.dim() != 2 or x.dim() != 1 or a.shape[1] != x.shape[0] or not _same_dtype(a, x):
        return None
    return empty((a.shape[0],), a.dtype)


@rule(aten.dot.default)
def _dot(func: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dim() != 1 or b.dim() != 1 or a.shape[0] != b.shape[0] or not _same_dtype(a, b):
        return None
    return empty((), a.dtype)


@rule(aten.embedding.default)
def _embedding(func: Any, weight: torch.Tensor, indices: torch.Tensor, *rest: Any) -> Any:
    if weight.dim() != 2 or not indices.is_contiguous():
        return None
    return empty((*indices.shape, weight.shape[1]), weight.dtype)


@functools.cache
def _attention_keeps_layout() -> bool:
    """Whether flash attention's output has the strides of the query; in older PyTorch it had those of (batch, length, heads, depth)."""
    q = torch.ones(1, 2, 3, 4, device="cpu")
    with torch.inference_mode():
        out = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(q, q, q)[0]
    return out.stride() == q.stride()


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash_attention_cpu(
    func: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **kwargs: Any
) -> Any:
    if not _attention_keeps_layout() or q.shape[3] != v.shape[3]:
        return None
    b, h, n, _ = q.shape
    statistics = torch.float32 if q.dtype in (torch.bfloat16, torch.float16) else q.dtype
    dense = is_dense(q)
    if not dense and 0 in q.stride():
        return None
    strides = q.stride() if dense else iterator_strides(tuple(q.shape), [q], False)
    out = torch.empty_strided(q.shape, strides, dtype=q.dtype, device="meta")
    return out, empty((b, n, h), statistics).transpose(1, 2)


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


def _broadcast(*tensors: torch.Tensor) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*(t.shape[:-2] for t in tensors)))


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
    """Sizes by the usual formula; contiguous in, contiguous out.  Other layouts: the library is asked (see record.py)."""
    if transposed or not x.is_contiguous() or not weight.is_contiguous() or x.dim() != weight.dim():
        return None
    spatial = [
        (x.shape[2 + i] + 2 * padding[i % len(padding)]
         - dilation[i % len(dilation)] * (weight.shape[2 + i] - 1) - 1) // stride[i % len(stride)] + 1
        for i in range(x.dim() - 2)
    ]  # fmt: skip
    if any(n <= 0 for n in spatial) or x.shape[1] != weight.shape[1] * groups:
        return None
    return empty((x.shape[0], weight.shape[0], *spatial), x.dtype)


@rule(
    aten._softmax.default, aten._log_softmax.default, aten.cumsum.default, aten.cumprod.default,
    aten.tril.default, aten.triu.default,
)  # fmt: skip
def _like_first(func: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if (
        not x.is_contiguous()
        or kwargs.get("dtype") not in (None, x.dtype)
        or any(a is True for a in args)
    ):
        return None
    if func in (aten.cumsum.default, aten.cumprod.default) and not x.dtype.is_floating_point:
        return None
    return empty(x.shape, x.dtype)


@rule(
    aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
    aten.rand_like.default, aten.randn_like.default, aten.randint_like.default, aten.randint_like.low_dtype,
)  # fmt: skip
def _fresh_like(
    func: Any,
    x: torch.Tensor,
    *args: Any,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    memory_format: Any = None,
    **options: Any,
) -> Any:
    strided = layout in (None, torch.strided)
    return like(x, dtype) if strided and memory_format in (None, torch.preserve_format) else None


@rule(aten.fill.Scalar, aten.fill.Tensor, aten.uniform.default, aten.normal_functional.default)
def _filled(func: Any, x: torch.Tensor, *args: Any, **options: Any) -> Any:
    if args and isinstance(args[0], torch.Tensor) and args[0].dim():
        return None
    return like(x)


@rule(aten.flip.default)
def _flip(func: Any, x: torch.Tensor, dims: list[int]) -> Any:
    return like(x) if all(-x.dim() <= d < x.dim() for d in dims) else None


@rule(aten.roll.default)
def _roll(func: Any, x: torch.Tensor, shifts: Any, dims: Any = ()) -> Any:
    if not x.numel():
        return like(x) if dims else empty(x.shape, x.dtype)
    return empty(x.shape, x.dtype) if x.is_contiguous() and len(dims) == 1 else None


@rule(aten.frexp.Tensor)
def _frexp(func: Any, x: torch.Tensor) -> Any:
    return (like(x), like(x, torch.int32)) if is_dense(x) else None


@rule(aten.sort.default, aten.sort.stable)
def _sort(func: Any, x: torch.Tensor, *args: Any, **options: Any) -> Any:
    dim = options.get("dim", next((a for a in args if not isinstance(a, bool)), -1))
    wrap_dim(dim, x.dim())
    return (like(x), like(x, torch.int64)) if is_dense(x) else None


@rule(aten.where.self)
def _where(func: Any, condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
    if condition.dtype is not torch.bool or not _same_dtype(a, b):
        return None
    shape = broadcast(condition.shape, a.shape, b.shape)
    if shape is None:
        return None
    alike = all(t.shape == shape for t in (condition, a, b))
    strides = iterator_strides(tuple(shape), [condition, a, b], alike)
    return torch.empty_strided(shape, strides, dtype=a.dtype, device="meta")


@rule(aten.scalar_tensor.default)
def _scalar_tensor(
    func: Any, value: Any, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> Any:
    return empty((), dtype or torch.get_default_dtype())


@rule(aten.nll_loss_forward.default)
def _nll_loss_forward(
    func: Any, x: torch.Tensor, target: torch.Tensor, weight: Any, reduction: int, ignore_index: int
) -> Any:
    if x.dim() != 2 or target.shape != x.shape[:1] or weight is not None:
        return None
    return empty(target.shape if reduction == 0 else (), x.dtype), empty((), x.dtype)


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
    if any(p is None or p.dtype != x.dtype for p in parameters) or not x.is_contiguous():
        return None
    channels = x.shape[1:2]
    return empty(x.shape, x.dtype), *(empty(channels, x.dtype) for _ in range(4))


@rule(aten.var.correction, aten.std.correction)
def _var(
    func: Any, x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    if not x.is_contiguous() or not x.dtype.is_floating_point:
        return None
    return empty(_reduced(x, dim, keepdim), x.dtype)


@rule(aten.linalg_vector_norm.default)
def _vector_norm(
    func: Any,
    x: torch.Tensor,
    order: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Any:
    if not x.is_contiguous() or not x.dtype.is_floating_point:
        return None
    return empty(_reduced(x, dim, keepdim), dtype or x.dtype)


@rule(aten.any.default, aten.all.default)
def _any_all(func: Any, x: torch.Tensor) -> Any:
    return empty((), torch.bool) if x.dtype is torch.bool else None


@rule(aten.any.dim, aten.all.dim)
def _any_all_dim(func: Any, x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    if x.dtype is not torch.bool or not x.is_contiguous():
        return None
    return empty(_reduced(x, dim, keepdim), torch.bool)


@rule(aten.stack.default)
def _stack(func: Any, tensors: list[torch.Tensor], dim: int = 0) -> Any:
    first = tensors[0]
    if any(
        t.shape != first.shape or t.dtype != first.dtype or not t.is_contiguous() for t in tensors
    ):
        return None
    dim = wrap_dim(dim, first.dim() + 1)
    return empty((*first.shape[:dim], len(tensors), *first.shape[dim:]), first.dtype)


@rule(aten.baddbmm.default)
def _baddbmm(
    func: Any, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    out = _bmm(aten.bmm.default, a, b)
    if out is None or x.dtype != out.dtype or broadcast(x.shape, out.shape) != tuple(out.shape):
        return None
    return out


@rule(aten._transformer_encoder_layer_fwd.default)
def _encoder_layer(func: Any, x: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """Without a meta kernel before PyTorch 2.13."""
    return empty(x.shape, x.dtype)


@rule(aten.clone.default)
def _clone(func: Any, x: torch.Tensor, *, memory_format: Any = None) -> Any:
    preserve = memory_format in (None, torch.preserve_format)
    if preserve and is_dense(x):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    if x.is_contiguous() and (preserve or memory_format is torch.contiguous_format):
        return empty(x.shape, x.dtype)
    return None


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(func: Any, x: torch.Tensor, mask: torch.Tensor, value: Any) -> Any:
    """A contiguous copy, whatever the layout of x, then filled in place."""
    if isinstance(value, torch.Tensor) and value.dim():
        raise RuntimeError("masked_fill takes a value without dimensions")
    shape = broadcast(x.shape, mask.shape)
    return None if shape is None else empty(shape, x.dtype)


# --- without a meta kernel


@rule(aten.geqrf.default)
def _geqrf(func: Any, a: torch.Tensor) -> Any:
    if a.dim() < 2:
        return None
    *batch, rows, columns = a.shape
    return empty((*batch, columns, rows), a.dtype).mT, empty((*batch, min(rows, columns)), a.dtype)


@rule(aten.histogram.bin_ct)
def _histogram_of_count(func: Any, x: torch.Tensor, bins: int = 100, **options: Any) -> Any:
    return empty(bins, x.dtype), empty(bins + 1, x.dtype)


@rule(aten.histogram.bins_tensor)
def _histogram_of_edges(func: Any, x: torch.Tensor, bins: torch.Tensor, **options: Any) -> Any:
    if bins.dim() != 1 or not bins.numel():
        return None
    return empty(bins.numel() - 1, x.dtype), empty(bins.numel(), x.dtype)


@rule(aten._histogramdd_bin_edges.default)
def _histogramdd_edges(func: Any, x: torch.Tensor, bins: list[int], **options: Any) -> Any:
    return [empty(n + 1, x.dtype) for n in bins]


@rule(aten._histogramdd_from_bin_cts.default)
def _histogramdd_of_counts(func: Any, x: torch.Tensor, bins: list[int], **options: Any) -> Any:
    return empty(bins, x.dtype)


@rule(aten._histogramdd_from_bin_tensors.default)
def _histogramdd_of_edges(
    func: Any, x: torch.Tensor, bins: list[torch.Tensor], **options: Any
) -> Any:
    return empty([edges.numel() - 1 for edges in bins], x.dtype)


@rule(aten._foreach_addcmul.Tensor, aten._foreach_addcdiv.Tensor)
def _foreach_with_numbers(func: Any, tensors: Any, first: Any, second: Any, numbers: Any) -> Any:
    # The meta kernel wants to read the numbers.
    plain = aten.addcmul.default if func is aten._foreach_addcmul.Tensor else aten.addcdiv.default
    if not numbers.dim() == 1 or not len(numbers) == len(tensors) == len(first) == len(second):
        raise RuntimeError("tensor lists and scalars of different lengths")
    return [plain(x, a, b) for x, a, b in zip(tensors, first, second, strict=True)]


def _foreach(func: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """Lists of floats that correspond in dtype and layout: each result is like its tensor."""
    if not isinstance(tensors, list | tuple):
        return None
    lists = [a for a in args if isinstance(a, list | tuple) and a and hasattr(a[0], "dtype")]
    if any(len(a) != len(tensors) for a in args if isinstance(a, list | tuple)):
        return None
    others = [a for a in args if isinstance(a, complex | torch.Tensor)]
    if any(isinstance(a, complex) or a.dim() or a.dtype.is_complex for a in others):
        return None
    for k, t in enumerate(tensors):
        facts = t.dtype, t.shape, t.stride()
        if not t.dtype.is_floating_point or not t.is_contiguous() or (others and not t.dim()):
            return None
        if any((a[k].dtype, a[k].shape, a[k].stride()) != facts for a in lists):
            return None
    return [empty(t.shape, t.dtype) for t in tensors]


for _name in PLAIN:
    _packet, _, _overload = _name.partition(".")
    # The list of a later PyTorch has more.
    if (_op := getattr(getattr(aten, f"_foreach_{_packet}", None), _overload, None)) is not None:
        rule(_op)(_foreach)
