"""Rules for gather, scatter and other ops that change some elements of a tensor, mostly for symbolic sizes.

PyTorch's kernels trust the checks of its shape functions: an index tensor that is larger than the tensor that
it is for would read or write other memory. So each rule makes the same checks, and the answers become guards.
"""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.shapes.index_rules import MASKS, around
from frameloom.capture.shapes.iteration import (
    broadcast,
    dense_like,
    empty,
    equal_sizes,
    expands_to,
    wrap_dim,
)
from frameloom.capture.shapes.registry import FRESH, is_sized, layout, rule, sized_rule
from frameloom.ir.symbolic.compare import equal, fits

aten = torch.ops.aten
INDICES = (torch.int64, torch.int32)
FRESH |= {aten.gather.default}
PARTS = {
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.as_strided_scatter.default: aten.as_strided.default,
}


def _inside(index: Any, other: Any, dim: int | None = None) -> bool:
    """Whether `index` is not larger than the other tensor, except along `dim`."""
    return index.dim() == other.dim() and all(
        d == dim or fits(n, m)
        for d, (n, m) in enumerate(zip(index.shape, other.shape, strict=True))
    )


def _changed(x: Any) -> Any:
    return empty(x.shape, x.dtype) if x.is_contiguous() else None


@sized_rule(aten.gather.default)
def _gather(func: Any, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    return empty(index.shape, x.dtype) if _inside(index, x, wrap_dim(dim, x.dim())) else None


@sized_rule(aten.scatter.src, aten.scatter.value, aten.scatter_add.default)
def _scatter(func: Any, x: Any, dim: int, index: Any, source: Any) -> Any:
    if not _inside(index, x, wrap_dim(dim, x.dim())):
        return None
    if isinstance(source, torch.Tensor) and not _inside(index, source):
        return None
    return _changed(x)


@rule(aten.index_add.default, aten.index_copy.default)
def _index_add(func: Any, x: Any, dim: int, index: Any, source: Any, **options: Any) -> Any:
    """Raises for a source of a wrong size: meta kernels accept any."""
    if not _fits_index(x, dim, index, source):
        raise RuntimeError("source and index do not fit the tensor")
    if is_sized((x, index, source)):
        return empty(x.shape, x.dtype)
    result = func(x, dim, index, source, **options)
    return empty(result.shape, result.dtype)


def _refuse_indices(x: Any, indices: Any, values: Any) -> None:
    """Raises what kernels raise. Meta kernels accept too many indices, any dtype, and masks and values of
    other sizes."""
    if len(indices) > x.dim():
        raise IndexError(f"{len(indices)} indices for {x.dim()} dimensions")
    at = 0
    for t in indices:
        rank = 1
        if t is not None and t.dtype in MASKS:
            rank = t.dim()
            if not rank or not equal_sizes(t.shape, x.shape[at : at + rank]):
                raise IndexError("a mask of other sizes than what it selects from")
        elif t is not None and t.dtype not in INDICES:
            raise IndexError(f"indices of {t.dtype}")
        at += rank
    if at > x.dim():
        raise IndexError(f"indices for {at} dimensions of {x.dim()}")
    chosen = [d for d, t in enumerate(indices) if t is not None]
    if not chosen or any(indices[d].dtype in MASKS for d in chosen):
        return  # data decides the number of places
    if values.dtype is not x.dtype:
        raise RuntimeError(f"{values.dtype} for places in a tensor of {x.dtype}")
    middle = broadcast(*(indices[d].shape for d in chosen))
    if middle is None:
        raise IndexError("indices of sizes that do not fit together")
    before, after = around(x.shape, chosen)
    if not expands_to(values.shape, [*before, *middle, *after]):
        raise RuntimeError("values of sizes that do not fit the places")


@rule(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(func: Any, x: Any, indices: Any, values: Any, *rest: Any) -> Any:
    """Returns a copy with the layout of `clone`."""
    _refuse_indices(x, indices, values)
    if is_sized((x, indices, values)):
        return dense_like(x)
    result = func(x, indices, values, *rest)
    return dense_like(x) if result.shape == x.shape else result


def _fits_index(x: Any, dim: int, index: Any, source: Any) -> bool:
    if not x.dim():  # counts as one element
        single = index.dim() < 2 and source.dim() < 2
        return single and all(equal(t.numel(), 1) for t in (index, source))
    if index.dim() != 1:
        return False
    dim = wrap_dim(dim, x.dim())
    wanted = [index.shape[0] if d == dim else n for d, n in enumerate(x.shape)]
    return equal_sizes(source.shape, wanted)


@rule(*PARTS)
def _part_put_back(func: Any, x: Any, part: Any, *where: Any, **named: Any) -> Any:
    """Raises for a part of a wrong size: meta kernels accept any size, and some of PyTorch 2.11 keep the
    strides of expanded tensors."""
    wanted = PARTS[func](x, *where, **named).shape
    if not equal_sizes(part.shape, wanted):
        raise RuntimeError(f"expected src to have a size equal to the slice of self: {wanted}")
    if is_sized((x, part)):
        return dense_like(x) if x.is_contiguous() else None
    expanded = any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride(), strict=True))
    # For tensors without elements, meta kernels other than these drop the strides.
    return torch.empty_like(x) if expanded and x.numel() else None


@sized_rule(aten.masked_scatter.default)
def _masked_scatter(func: Any, x: Any, mask: Any, source: Any) -> Any:
    return _changed(x) if expands_to(mask.shape, x.shape) else None


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(func: Any, x: torch.Tensor, mask: torch.Tensor, value: Any) -> Any:
    """A contiguous copy, for any layout of x, which is then filled in place."""
    if isinstance(value, torch.Tensor) and value.dim():
        raise RuntimeError("masked_fill takes a value without dimensions")
    shape = broadcast(x.shape, mask.shape)
    return None if shape is None else empty(shape, x.dtype)


@rule(aten._unsafe_masked_index_put_accumulate.default)
@sized_rule(aten.index_fill.int_Scalar)
def _copied(func: Any, x: Any, *args: Any) -> Any:
    return dense_like(x)


@layout(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def _filled_copy(meta: Any, x: Any, *args: Any) -> Any:
    return dense_like(x.meta)
