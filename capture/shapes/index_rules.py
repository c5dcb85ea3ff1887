"""The memory layout of the result of indexing by tensors: as TensorIterator chooses it, with stride 0 for
indexed dimensions.

Source: `make_info` of ATen's TensorAdvancedIndexing.
"""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.shapes.registry import empty, iterator_strides, rule, same_sizes
from frameloom.capture.tensors.sized import SizedMeta, empty_strided, has_sizes
from frameloom.ir.symbolic.expr import Int, Size

aten = torch.ops.aten


@rule(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(func: Any, x: torch.Tensor, indices: list[Any]) -> Any:
    at = [i for i, t in enumerate(indices) if t is not None]
    if any(indices[i].dtype in (torch.bool, torch.uint8) for i in at) or len(indices) > x.dim():
        return None
    if (
        len(at) == 1
        and (has_sizes(x.shape) or x.numel())
        and _is_plain(x)
        and _is_plain(indices[at[0]])
    ):
        index = indices[at[0]]
        return empty((*x.shape[: at[0]], *index.shape, *x.shape[at[0] + 1 :]), x.dtype)
    if has_sizes(x.shape, *(indices[i].shape for i in at)):
        return _sized_index_result(x, indices, at)
    return index_result(x, indices, same_strides=False)


def _sized_index_result(x: torch.Tensor, indices: list[Any], at: list[int]) -> Any:
    """Like `index_result`, for index tensors of one shape with symbolic sizes."""
    chosen = [indices[i] for i in at]
    middle = chosen[0].shape
    if not all(same_sizes(t.shape, middle) for t in chosen):
        return None
    rest = [d for d in range(x.dim()) if d not in at]
    adjacent = at == list(range(at[0], at[-1] + 1))
    before = rest[: at[0]] if adjacent else []
    after = rest[len(before) :]
    shape = (*(x.shape[d] for d in before), *middle, *(x.shape[d] for d in after))
    if _is_plain(x) and all(map(_is_plain, chosen)) and adjacent:
        return empty(shape, x.dtype)
    own = (*(x.stride(d) for d in before), *[0] * len(middle), *(x.stride(d) for d in after))
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


def _is_plain(t: torch.Tensor) -> bool:
    """Whether the strides are plain, also in dimensions of size 1, which have an order among the others."""
    return same_sizes(t.stride(), empty(t.shape, t.dtype).stride())


def index_result(x: torch.Tensor, indices: list[Any], same_strides: bool) -> Any:
    """Returns the result with its layout. `same_strides`: index tensors with different strides are made
    contiguous first, as on GPUs."""
    at = [i for i, t in enumerate(indices) if t is not None]
    chosen = torch.broadcast_tensors(*(indices[i] for i in at))
    before = at[0]
    if at != list(range(at[0], at[-1] + 1)):
        x = x.permute(*at, *(d for d in range(x.dim()) if d not in at))
        before = 0
    after = before + len(at)
    middle = chosen[0].shape
    shape = (*x.shape[:before], *middle, *x.shape[after:])
    source = torch.empty(0, dtype=x.dtype, device="meta").as_strided(
        shape, (*x.stride()[:before], *[0] * len(middle), *x.stride()[after:])
    )
    wide = (*[1] * before, *middle, *[1] * (x.dim() - after))
    chosen = [t.reshape(wide) for t in chosen]
    if same_strides and len({t.stride() for t in chosen}) > 1:
        chosen = [t.contiguous() for t in chosen]
    same_shape = all(t.shape == shape for t in chosen)
    strides = iterator_strides(shape, [source, *chosen], same_shape)
    return torch.empty_strided(shape, strides, dtype=x.dtype, device="meta")
