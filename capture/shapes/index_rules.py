"""Rules of shapes/registry.py for reading at indices. The layout of the result is as TensorIterator chooses it,
with stride 0 for indexed dimensions.

Source: `make_info` of ATen's TensorAdvancedIndexing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.iteration import (
    broadcast,
    empty,
    iterator_strides,
    same_sizes,
    wrap_dim,
)
from frameloom.capture.shapes.registry import FRESH, layout, rule, sized_rule
from frameloom.capture.tensors.sized import (
    SizedMeta,
    empty_strided,
    has_contiguous_strides,
    has_sizes,
    specialized,
)
from frameloom.ir.symbolic.expr import Int, Size

aten = torch.ops.aten
MASKS = (torch.bool, torch.uint8)
FRESH |= {aten.embedding.default, aten.index_select.default}


@rule(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(func: Any, x: Any, indices: Sequence[Any]) -> Any:
    at = [d for d, t in enumerate(indices) if t is not None]
    if not at or any(indices[d].dtype in MASKS for d in at) or len(indices) > x.dim():
        return None
    if not has_sizes(x.shape, *(indices[d].shape for d in at)):
        if (
            len(at) == 1
            and x.numel()
            and has_contiguous_strides(x)
            and has_contiguous_strides(indices[at[0]])
        ):
            index = indices[at[0]]
            return empty((*x.shape[: at[0]], *index.shape, *x.shape[at[0] + 1 :]), x.dtype)
        return _index_result(x, indices, same_strides=False)
    # By the operands that the kernel iterates over, if these are known.
    if (result := _sized_index_result(x, indices, at)) is not None:
        return result
    chosen = broadcast(*(indices[d].shape for d in at))
    if chosen is None:
        return None
    before, after = around(x.shape, at)
    return with_hint_layout(func, (x, indices), {}, [[*before, *chosen, *after]])


def around(numbers: Sequence[Int], at: Sequence[int]) -> tuple[Sequence[Int], Sequence[Int]]:
    """Returns the sizes or strides before and after those of the indices. If the indexed dimensions are not
    neighbours, the indices come first."""
    rest = [n for d, n in enumerate(numbers) if d not in at]
    first = at[0] if _are_neighbours(at) else 0
    return rest[:first], rest[first:]


def _are_neighbours(at: Sequence[int]) -> bool:
    return at[-1] - at[0] + 1 == len(at)


def _sized_index_result(x: torch.Tensor, indices: list[Any], at: list[int]) -> Any:
    """Like `index_result`, for index tensors of one shape with symbolic sizes."""
    chosen = [indices[i] for i in at]
    middle = chosen[0].shape
    if not all(same_sizes(t.shape, middle) for t in chosen):
        return None
    before, after = around(x.shape, at)
    shape = (*before, *middle, *after)
    if (
        _are_neighbours(at)
        and has_contiguous_strides(x)
        and all(map(has_contiguous_strides, chosen))
    ):
        return empty(shape, x.dtype)
    outer, inner = around(x.stride(), at)
    own = (*outer, *[0] * len(middle), *inner)
    source = SizedMeta(shape, own, x.dtype)
    wide = [_reshaped(t, len(before), len(after)) for t in chosen]
    strides = iterator_strides(shape, [source, *wide], not before and not after)
    return empty_strided(shape, strides, x.dtype)


def _reshaped(index: torch.Tensor, before: int, after: int) -> torch.Tensor:
    """Returns `index` with additional dimensions of size 1. Their strides are those of a view: as if the size
    were larger."""
    sizes, strides = index.shape, index.stride()
    outer = [(n, s) for n, s in zip(sizes, strides, strict=True) if isinstance(n, Size) or n != 1]
    lead: Int = outer[0][0] * outer[0][1] if outer else 1
    tail: Int = outer[-1][1] if outer else 1
    shape = (*[1] * before, *sizes, *[1] * after)
    return SizedMeta(shape, (*[lead] * before, *strides, *[tail] * after), index.dtype)


@layout(aten.index.Tensor, devices=("cuda",))
def _index_on_gpu(meta: Any, x: Any, indices: Any) -> Any:
    if sum(t is not None for t in indices) < 2:
        return meta
    chosen = [t if t is None else specialized(t.meta) for t in indices]
    return _index_result(specialized(x.meta), chosen, same_strides=True)


def _index_result(x: torch.Tensor, indices: list[Any], same_strides: bool) -> Any:
    """Returns the result with its layout. `same_strides`: index tensors with different strides are made
    contiguous first, as on GPUs."""
    at = [i for i, t in enumerate(indices) if t is not None]
    chosen = torch.broadcast_tensors(*(indices[i] for i in at))
    middle = chosen[0].shape
    (before, after), (outer, inner) = around(x.shape, at), around(x.stride(), at)
    shape = (*before, *middle, *after)
    source = torch.empty(0, dtype=x.dtype, device="meta").as_strided(
        shape, (*outer, *[0] * len(middle), *inner)
    )
    chosen = [t.reshape((*[1] * len(before), *middle, *[1] * len(after))) for t in chosen]
    if same_strides and len({t.stride() for t in chosen}) > 1:
        chosen = [t.contiguous() for t in chosen]
    same_shape = all(t.shape == shape for t in chosen)
    strides = iterator_strides(shape, [source, *chosen], same_shape)
    return torch.empty_strided(shape, strides, dtype=x.dtype, device="meta")


@rule(aten.embedding.default)
def _embedding(func: Any, weight: Any, indices: Any, *rest: Any) -> Any:
    return empty([*indices.shape, weight.shape[1]], weight.dtype) if weight.dim() == 2 else None


@sized_rule(aten.index_select.default)
def _index_select(func: Any, x: Any, dim: int, index: Any) -> Any:
    dim = wrap_dim(dim, x.dim())
    if index.dim() != 1 or not x.is_contiguous():
        return None
    return empty([index.shape[0] if d == dim else n for d, n in enumerate(x.shape)], x.dtype)


@rule(aten.one_hot.default)
def _one_hot(func: Any, index: torch.Tensor, classes: int) -> Any:
    return empty((*index.shape, classes), torch.int64)


@sized_rule(aten.searchsorted.Tensor, aten.bucketize.Tensor)
def _searched(func: Any, a: Any, b: Any, *, out_int32: bool = False, **options: Any) -> Any:
    boundaries, x = (a, b) if func is aten.searchsorted.Tensor else (b, a)
    if boundaries.dim() != 1:
        return None
    return empty(x.shape, torch.int32 if out_int32 else torch.int64)


@rule(aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar)
def _isin(func: Any, x: torch.Tensor, *args: Any, **options: Any) -> Any:
    return empty(x.shape, torch.bool)


@layout(aten.nonzero_static.default, devices=("cpu",))
def _nonzero_static(meta: Any, x: Any, **options: Any) -> Any:
    return empty(meta.shape, meta.dtype)


@layout(aten._embedding_bag.default, devices=("cpu",))
def _embedding_bag(
    meta: Any, weight: Any, indices: Any, offsets: Any, scale_grad: bool = False, mode: int = 0, sparse: bool = False,
    factors: Any = None, *rest: Any,
) -> Any:  # fmt: skip
    """Sizes of the tensors that are saved for the backward pass. Source: `make_offset2bag_out` and
    `make_max_indices_out` of ATen's EmbeddingBag."""
    out, bag_of, sizes, largest = meta
    bags, padding = out.shape[0], rest[1] if len(rest) > 1 else -1
    quick = (
        weight.dtype in (torch.float32, torch.float16, torch.bfloat16) and weight.stride(1) == 1 and padding < 0
        and (factors is None or factors.stride(0) == 1)
    )  # fmt: skip
    count = 0 if mode == 0 and quick else indices.shape[0]
    if mode != 2:
        largest = empty([bags], largest.dtype)
    return out, empty([count], bag_of.dtype), empty([bags], sizes.dtype), largest
