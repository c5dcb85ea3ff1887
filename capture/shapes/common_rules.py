"""Rules of shapes/registry.py for the ops that are frequent in real programs.

A rule returns None if it is not sure (other layouts, promotion, wrong arguments). Then the meta kernel
answers, or raises PyTorch's own error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.registry import (
    broadcast,
    dense_like,
    empty,
    is_dense,
    iterated,
    iterator_strides,
    like,
    rule,
    wrap_dim,
    wrap_dims,
)
from frameloom.capture.tensors.sized import (
    empty_strided,
    has_channels_last_strides,
    has_contiguous_strides,
    has_sizes,
)
from frameloom.ir.lower.ops.foreach import PLAIN
from frameloom.ir.symbolic.compare import equal

aten = torch.ops.aten


def _reduced(x: torch.Tensor, dims: Any, keepdim: bool) -> list[int]:
    if isinstance(dims, int):
        dims = [dims]
    wrapped = wrap_dims(dims, x.dim()) if dims else set(range(x.dim()))
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


@rule(aten.nansum.default)
def _nansum(
    func: Any, x: torch.Tensor, dims: Any = None, keepdim: bool = False, **options: Any
) -> Any:
    """An empty list means all dimensions: the meta kernel needs None for that."""
    return func(x, None if dims is not None and not len(dims) else dims, keepdim, **options)


@rule(aten.diag_embed.default, aten.im2col.default)
def _contiguous_result(func: Any, x: torch.Tensor, *args: Any, **options: Any) -> Any:
    """The kernels write into a fresh tensor; the meta kernels permute."""
    if has_sizes(x.shape):
        return None
    result = func(x, *args, **options)
    return empty(result.shape, result.dtype)


@rule(aten.one_hot.default)
def _one_hot(func: Any, index: torch.Tensor, classes: int) -> Any:
    return empty((*index.shape, classes), torch.int64)


@rule(aten._is_all_true.default, aten._is_any_true.default)
def _truth(func: Any, x: torch.Tensor) -> Any:
    return empty((), torch.bool)


@rule(aten.cat.default)
def _cat(func: Any, tensors: list[torch.Tensor], dim: int = 0) -> Any:
    first = tensors[0]
    if any(t.dim() != first.dim() or t.dtype != first.dtype for t in tensors):
        return None
    if any(has_channels_last_strides(t) for t in tensors):
        return None
    dim = wrap_dim(dim, first.dim())
    if not first.dim() or any(
        not equal(n, m) for t in tensors for i, (n, m) in enumerate(zip(t.shape, first.shape, strict=True)) if i != dim
    ):  # fmt: skip
        return None
    shape = list(first.shape)
    shape[dim] = sum(t.shape[dim] for t in tensors)
    return empty(shape, first.dtype)


def check_rank(func: Any, x: torch.Tensor, args: tuple[Any, ...]) -> None:
    """Raises if `x` lacks the dimensions that the op works along; some meta kernels do not check this."""
    if func in (aten.tril.default, aten.triu.default):
        if x.dim() < 2:
            raise RuntimeError("input tensor must have at least 2 dimensions")
    elif args:
        wrap_dim(args[0], x.dim())


@rule(
    aten._softmax.default, aten._log_softmax.default, aten.cumsum.default, aten.cumprod.default,
    aten.tril.default, aten.triu.default,
)  # fmt: skip
def _like_first(func: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    check_rank(func, x, args)
    if func in (aten.tril.default, aten.triu.default):
        return empty(x.shape, x.dtype)
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
    wrap_dims(dims, x.dim())
    return like(x)


@rule(aten.rot90.default)
def _rot90(func: Any, x: torch.Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """Does what eager mode does: `flip`, then a view of the result."""
    if k % 4 == 0 or len(dims) != 2 or not is_dense(x):
        return None
    wrap_dims(dims, x.dim())
    shape, strides = list(x.shape), list(x.stride())
    if k % 2:
        i, j = dims
        shape[i], shape[j], strides[i], strides[j] = shape[j], shape[i], strides[j], strides[i]
    return empty_strided(shape, strides, x.dtype)


@rule(aten.complex.default, aten.polar.default)
def _complex(func: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    result = func(a, b)
    shape = tuple(result.shape)
    strides = iterator_strides(shape, [a, b], a.shape == b.shape == shape)
    return torch.empty_strided(shape, strides, dtype=result.dtype, device="meta")


@rule(aten.roll.default)
def _roll(func: Any, x: torch.Tensor, shifts: Any, dims: Any = ()) -> Any:
    if not x.numel():
        return like(x) if dims else empty(x.shape, x.dtype)
    if dims and len(dims) != len(shifts):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}"
        )
    for dim in dims:
        wrap_dim(dim, x.dim())
    if x.is_contiguous() and len(dims) == 1 and not has_channels_last_strides(x):
        return empty(x.shape, x.dtype)
    if not dims:
        return None
    for shift, dim in zip(shifts, dims, strict=True):  # the same steps as the kernel
        start = -shift % x.shape[dim]
        x = torch.cat([x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)], dim)
    return x


@rule(aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar)
def _isin(func: Any, x: torch.Tensor, *args: Any, **options: Any) -> Any:
    return empty(x.shape, torch.bool)


@rule(aten.mvlgamma.default)
def _mvlgamma(func: Any, x: torch.Tensor, p: int) -> Any:
    """Leaves it to the meta kernel: the op sums over a dimension that is added after the others."""
    return None


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
    if condition.dtype is not torch.bool:
        return None
    # The kernel converts the operands itself, which makes them dense.
    dtype = torch.result_type(a, b)
    return iterated([condition, *(t if t.dtype is dtype else dense_like(t) for t in (a, b))], dtype)


@rule(aten.max.dim, aten.min.dim, aten.median.dim, aten.nanmedian.dim, aten.mode.default)
def _extremes(func: Any, x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """Raises what the kernels raise, because PyTorch's own meta functions do not check it."""
    d = wrap_dim(dim, x.dim())
    if x.dim() and not has_sizes(x.shape) and x.shape[d] == 0:
        raise IndexError(f"Expected reduction dim {d} to have non-zero size.")
    return None


@rule(aten.scalar_tensor.default)
def _scalar_tensor(
    func: Any, value: Any, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> Any:
    return empty((), dtype or torch.get_default_dtype())


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


@rule(aten.any.dims, aten.all.dims)
def _any_all_dims(func: Any, x: torch.Tensor, dims: Any = None, keepdim: bool = False) -> Any:
    """An empty list means no dimension; the result is then a fresh tensor, for any strides of the operand."""
    if dims is None or len(dims):
        return None
    return empty(x.shape, torch.uint8 if x.dtype is torch.uint8 else torch.bool)


@rule(aten.any.dim, aten.all.dim)
def _any_all_dim(func: Any, x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    if x.dtype is not torch.bool or not x.is_contiguous():
        return None
    return empty(_reduced(x, dim, keepdim), torch.bool)


@rule(aten.stack.default)
def _stack(func: Any, tensors: list[torch.Tensor], dim: int = 0) -> Any:
    first = tensors[0]
    # Contiguous tensors with sizes of 1 may also count as channels-last.
    plain = all(has_contiguous_strides(t) and t.is_contiguous() for t in tensors)
    if not plain or any(t.shape != first.shape or t.dtype != first.dtype for t in tensors):
        return None
    dim = wrap_dim(dim, first.dim() + 1)
    return empty((*first.shape[:dim], len(tensors), *first.shape[dim:]), first.dtype)


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
    """A contiguous copy, for any layout of x, which is then filled in place."""
    if isinstance(value, torch.Tensor) and value.dim():
        raise RuntimeError("masked_fill takes a value without dimensions")
    shape = broadcast(x.shape, mask.shape)
    return None if shape is None else empty(shape, x.dtype)


# --- ops without a meta kernel


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
    # The meta kernel would read the numbers.
    plain = aten.addcmul.default if func is aten._foreach_addcmul.Tensor else aten.addcdiv.default
    if not numbers.dim() == 1 or not len(numbers) == len(tensors) == len(first) == len(second):
        raise RuntimeError("tensor lists and scalars of different lengths")
    return [plain(x, a, b) for x, a, b in zip(tensors, first, second, strict=True)]


def _foreach(func: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """For lists of floats with the same dtypes and layouts, each result is like its tensor."""
    if not isinstance(tensors, list | tuple):
        return None
    lists = [a for a in args if isinstance(a, list | tuple) and a and hasattr(a[0], "dtype")]
    if any(len(a) != len(tensors) for a in args if isinstance(a, list | tuple)):
        return None
    others = [a for a in args if isinstance(a, complex | torch.Tensor)]
    if any(isinstance(a, complex) or a.dim() or a.dtype.is_complex for a in others):
        return None
    for k, t in enumerate(tensors):
        properties = t.dtype, t.shape, t.stride()
        if not t.dtype.is_floating_point or not t.is_contiguous() or (others and not t.dim()):
            return None
        if any((a[k].dtype, a[k].shape, a[k].stride()) != properties for a in lists):
            return None
    return [empty(t.shape, t.dtype) for t in tensors]


for _name in PLAIN:
    _packet, _, _overload = _name.partition(".")
    # PLAIN has ops that only later versions of PyTorch have.
    if (_op := getattr(getattr(aten, f"_foreach_{_packet}", None), _overload, None)) is not None:
        rule(_op)(_foreach)
