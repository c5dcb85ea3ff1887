"""Rules for views of tensors with symbolic sizes: the computations of ATen's own kernels, on Sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.iteration import wrap_dim
from frameloom.capture.shapes.registry import KEEPING, sized_rule
from frameloom.capture.tensors.sized import empty_strided, strides_of
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.compare import bounds, equal, fits, same
from frameloom.ir.symbolic.expr import Int, Size, hint_of, largest, smallest

aten = torch.ops.aten
KEEPING |= {
    aten.view.default, aten._unsafe_view.default, aten.alias.default, aten.unsqueeze.default, aten.detach.default,
}  # fmt: skip
COMPLEX = {torch.float16: torch.complex32, torch.float32: torch.complex64, torch.float64: torch.complex128}  # fmt: skip


def _like(x: Any, shape: Sequence[Int], strides: Sequence[Int], offset: Int | None = None) -> Any:
    return empty_strided(shape, strides, x.dtype, x.storage_offset() if offset is None else offset)


def is_one(n: Int) -> bool:
    """Whether `n` is certainly 1; a symbolic size is assumed not to be."""
    return not isinstance(n, Size) and n == 1


def _is_one_deferred(n: Int, alone: bool = False) -> bool:
    """Whether `n` is 1, if a stride depends on it."""
    return n.shape_env.is_one_deferred(n, alone) if isinstance(n, Size) else n == 1


def _equal_deferred(a: Int, b: Int) -> bool:
    """Whether both are equal. If they differ in this call, a layout assumption requires it always."""
    if same(a, b) or unbacked_in(a - b):
        return same(a, b)
    if hint_of(a) == hint_of(b):
        return bool(a == b)
    n = a - b
    if isinstance(n, Size):
        n.shape_env.assume_distinct_deferred(n)
    return False


def infer_size(shape: Sequence[Int], own: Sequence[Int]) -> list[Int] | None:
    """Returns the sizes of a view of a tensor of sizes `own`, with -1 replaced; None if they do not fit. If
    it is unknown whether they fit, sizes that equal its own in this call get an equality guard (a batch size
    read from another tensor)."""
    numel: Int = math.prod(own)
    free = [d for d, n in enumerate(shape) if not isinstance(n, Size) and n == -1]
    known: Int = math.prod(n for d, n in enumerate(shape) if d not in free)
    if not free:
        if not same(known, numel):
            _equal_each([n for n in shape if not is_one(n)], [n for n in own if not is_one(n)])
        return list(shape) if equal(known, numel) else None
    if len(free) > 1 or known <= 0:
        return None
    if isinstance(known, Size) and not same(numel % known, 0):
        _equal_each(shape, own)
    if not equal(numel % known, 0):
        return None
    return [numel // known if d == free[0] else n for d, n in enumerate(shape)]


def _equal_each(shape: Sequence[Int], own: Sequence[Int]) -> None:
    """Adds guards that leading sizes which are equal in this call are equal."""
    for n, mine in zip(shape, own, strict=False):
        if unbacked_in(n) or unbacked_in(mine) or hint_of(n) != hint_of(mine):
            break
        equal(n, mine)


def view_strides(
    shape: Sequence[Int], old: Sequence[Int], strides: Sequence[Int]
) -> list[Int] | None:
    """Returns the strides of a view; None if it needs a copy. Source: `computeStride_impl` of ATen's
    TensorUtils."""
    if not old:
        return [1] * len(shape)
    if any(not isinstance(n, Size) and n == 0 for n in old):
        same_shape = len(old) == len(shape) and all(map(same, old, shape))
        return list(strides) if same_shape else strides_of(shape)
    result: list[Int] = [0] * len(shape)
    at = len(shape) - 1
    base = strides[-1]
    of_tensor: Int = 1
    of_view: Int = 1
    for d in range(len(old) - 1, -1, -1):
        of_tensor = of_tensor * old[d]
        if d and (
            is_one(old[d - 1])
            or _equal_deferred(strides[d - 1], of_tensor * base)
            or _is_one_deferred(old[d - 1])
        ):
            continue
        while at >= 0 and (not _equal_deferred(of_view, of_tensor) or _is_one_deferred(shape[at])):
            result[at] = of_view * base
            of_view = of_view * shape[at]
            at -= 1
        if not _equal_deferred(of_view, of_tensor):
            return None
        if d:
            base = strides[d - 1]
            of_tensor = of_view = 1
    return result if at == -1 else None


@sized_rule(aten.view.default, aten._unsafe_view.default)
def _view(func: Any, x: Any, shape: Sequence[Int]) -> Any:
    sizes = infer_size(shape, x.shape)
    if sizes is None:
        return None
    strides = view_strides(sizes, x.shape, x.stride())
    return None if strides is None else _like(x, sizes, strides)


@sized_rule(aten.alias.default, aten.detach.default, aten.lift_fresh.default)
def _alias(func: Any, x: Any) -> Any:
    return _like(x, x.shape, x.stride())


@sized_rule(aten.permute.default)
def _permute(func: Any, x: Any, dims: Sequence[int]) -> Any:
    order = [wrap_dim(d, x.dim()) for d in dims]
    if sorted(order) != list(range(x.dim())):
        return None
    return _like(x, [x.shape[d] for d in order], [x.stride(d) for d in order])


@sized_rule(aten.transpose.int)
def _transpose(func: Any, x: Any, a: int, b: int) -> Any:
    order = list(range(x.dim()))
    if order:
        a, b = wrap_dim(a, x.dim()), wrap_dim(b, x.dim())
        order[a], order[b] = order[b], order[a]
    return _permute(func, x, order)


@sized_rule(aten.t.default)
def _t(func: Any, x: Any) -> Any:
    return _permute(func, x, list(range(x.dim()))[::-1]) if x.dim() <= 2 else None


@sized_rule(aten.expand.default)
def expand(func: Any, x: Any, shape: Sequence[Int], *, implicit: bool = False) -> Any:
    lead = len(shape) - x.dim()
    if lead < 0:
        return None
    if not x.dim() and all(isinstance(n, Size) or n >= 0 for n in shape):
        return _like(x, list(shape), [0] * lead)  # also for dimensions of size 1
    sizes: list[Int] = []
    strides: list[Int] = []  # both from the last dimension to the first
    for d in range(len(shape) - 1, -1, -1):
        own: Int = x.shape[d - lead] if d >= lead else 1
        stride: Int = x.stride(d - lead) if d >= lead else sizes[-1] * strides[-1] if sizes else 1
        n = shape[d]
        if isinstance(n, Size) and not unbacked_in(n) and n < 0:
            n = int(n)
        if not isinstance(n, Size) and n < 0:
            if d < lead or n < -1:
                return None
            n = own
        # If it keeps its stride, it is contiguous with the dimensions after it: nothing else changes then.
        in_order = bool(sizes) and same(stride, sizes[-1] * strides[-1])
        if is_one(own) and not (is_one(n) if same(stride, 0) else _is_one_deferred(n, in_order)):
            stride = 0
        elif not equal(own, n):
            return None
        sizes.append(n)
        strides.append(stride)
    return _like(x, sizes[::-1], strides[::-1])


@sized_rule(aten.unsqueeze.default)
def _unsqueeze(func: Any, x: Any, dim: int) -> Any:
    dim = wrap_dim(dim, x.dim() + 1)
    shape, strides = list(x.shape), list(x.stride())
    strides.insert(dim, shape[dim] * strides[dim] if dim < x.dim() else 1)
    shape.insert(dim, 1)
    return _like(x, shape, strides)


@sized_rule(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def _squeeze(func: Any, x: Any, dims: Any = None) -> Any:
    rank = x.dim()
    wanted = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    chosen = {wrap_dim(d, rank) for d in wanted}
    kept = [d for d in range(rank) if d not in chosen or x.shape[d] != 1]
    return _like(x, [x.shape[d] for d in kept], [x.stride(d) for d in kept])


@sized_rule(aten.select.int)
def _select(func: Any, x: Any, dim: int, index: Int) -> Any:
    dim = wrap_dim(dim, x.dim())
    n = x.shape[dim]
    if not x.dim() or index < -n or not fits(index + 1, n):
        return None
    position = index + n if index < 0 else index
    kept = [d for d in range(x.dim()) if d != dim]
    offset = x.storage_offset() + position * x.stride(dim)
    return _like(x, [x.shape[d] for d in kept], [x.stride(d) for d in kept], offset)


@sized_rule(aten.slice.Tensor)
def _slice(
    func: Any, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    dim = wrap_dim(dim, x.dim())
    if not x.dim() or step < 1:
        return None
    n = x.shape[dim]
    first, last = bounds(start, end, n)
    shape, strides = list(x.shape), list(x.stride())
    shape[dim] = (last - first + step - 1) // step
    strides[dim] = strides[dim] * step
    return _like(x, shape, strides, x.storage_offset() + first * x.stride(dim))


@sized_rule(aten.as_strided.default)
def _as_strided(
    func: Any, x: Any, shape: Sequence[Int], strides: Sequence[Int], offset: Any = None
) -> Any:
    return _like(x, shape, strides, offset)


@sized_rule(aten.view_as_real.default)
def _view_as_real(func: Any, x: Any) -> Any:
    if not x.dtype.is_complex:
        return None
    strides = [*(2 * s for s in x.stride()), 1]
    return empty_strided([*x.shape, 2], strides, x.dtype.to_real(), 2 * x.storage_offset())


@sized_rule(aten.view_as_complex.default)
def _view_as_complex(func: Any, x: Any) -> Any:
    if not x.dim() or not same(x.shape[-1], 2) or not same(x.stride(-1), 1):
        return None
    halves = [*x.stride()[:-1], x.storage_offset()]
    if x.dtype not in COMPLEX or not all(same(n % 2, 0) for n in halves):
        return None
    *strides, offset = (n // 2 for n in halves)
    return empty_strided(x.shape[:-1], strides, COMPLEX[x.dtype], offset)


@sized_rule(aten.diagonal.default)
def _diagonal(func: Any, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    a, b = wrap_dim(dim1, x.dim()), wrap_dim(dim2, x.dim())
    if a == b or isinstance(offset, Size):
        return None
    down, right = (-offset, 0) if offset < 0 else (0, offset)
    length = largest(smallest(x.shape[a] - down, x.shape[b] - right), 0)
    kept = [d for d in range(x.dim()) if d not in (a, b)]
    if not length > 0:
        return None
    start = x.storage_offset() + down * x.stride(a) + right * x.stride(b)
    return _like(x, [*(x.shape[d] for d in kept), length],
                 [*(x.stride(d) for d in kept), x.stride(a) + x.stride(b)], start)  # fmt: skip


@sized_rule(aten.unfold.default)
def _unfold(func: Any, x: Any, dim: int, size: int, step: int) -> Any:
    dim = wrap_dim(dim, x.dim())
    if (
        not x.dim()
        or isinstance(size, Size)
        or isinstance(step, Size)
        or step < 1
        or size < 0
        or x.shape[dim] < size
    ):
        return None
    shape, strides = list(x.shape), list(x.stride())
    shape[dim] = (shape[dim] - size) // step + 1
    return _like(
        x, [*shape, size], [*strides[:dim], strides[dim] * step, *strides[dim + 1 :], strides[dim]]
    )
