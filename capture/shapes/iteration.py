"""Layouts that kernels give their results: fresh ones, those of `empty_like`, and those of kernels that iterate over
operands (ATen's TensorIterator).

All functions take symbolic sizes, too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from frameloom.capture.tensors.sized import (
    Sized,
    dense_strides,
    empty_strided,
    has_channels_last_strides,
    has_contiguous_strides,
    has_sizes,
    resolved,
    strides_of,
)
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.compare import equal, same
from frameloom.ir.symbolic.expr import Int, Size, hint_of
from frameloom.ir.symbolic.symint import follows, is_less


def empty(shape: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(shape, list | tuple) and has_sizes(shape):
        return empty_strided(shape, strides_of(shape), dtype)
    return torch.empty(shape, dtype=dtype, device="meta")


def fresh(shape: Sequence[Int], dtype: torch.dtype, channels_last: bool) -> torch.Tensor:
    if not channels_last:
        return empty(shape, dtype)
    order = (1, *range(len(shape) - 1, 1, -1), 0)
    return empty_strided(shape, dense_strides(shape, order), dtype)


def as_suggested(
    x: torch.Tensor, shape: Sequence[Int], dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Returns a fresh tensor in the memory format that `x` suggests."""
    return fresh(shape, dtype or x.dtype, has_channels_last_strides(x))


def wrap_dim(dim: int, rank: int) -> int:
    """Returns `dim` counted from the front."""
    size = max(rank, 1)
    if not -size <= dim < size:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {dim})"
        )
    return dim % size


def wrap_dims(dims: Sequence[int], rank: int) -> set[int]:
    """Returns `dims` counted from the front; each may occur once."""
    wrapped: set[int] = set()
    for dim in dims:
        d = wrap_dim(dim, rank)
        if d in wrapped:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        wrapped.add(d)
    return wrapped


def iterated(operands: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor | None:
    """Returns the result of a kernel that iterates over these operands, in this order."""
    shape = broadcast(*(t.shape for t in operands))
    if shape is None:
        return None
    same_shape = all(same_sizes(t.shape, shape) for t in operands)
    return empty_strided(shape, iterator_strides(shape, operands, same_shape), dtype)


def same_sizes(a: Sequence[Int], b: Sequence[Int]) -> bool:
    return len(a) == len(b) and all(n is m or same(n, m) for n, m in zip(a, b, strict=True))


def broadcast(*shapes: Sequence[Int]) -> tuple[Int, ...] | None:
    """Returns the common shape, or None if there is none."""
    rank = max(map(len, shapes))
    result: list[Int] = [1] * rank
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            if isinstance(n, Size) or n != 1:  # a symbolic size is assumed not to be 1
                before = result[i]
                if (isinstance(before, Size) or before != 1) and not equal(before, n):
                    return None
                result[i] = n
    # If a size of 1 meets a symbolic size that is 1 in the captured call, nothing is repeated: a guard says so.
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            if _is_one(n):
                is_one_here(result[i])
    return tuple(map(resolved, result))  # with the equalities found


def equal_sizes(a: Sequence[Int], b: Sequence[Int]) -> bool:
    """Like `same_sizes`, but where the sizes do not tell, a guard says so."""
    return len(a) == len(b) and all(n is m or equal(n, m) for n, m in zip(a, b, strict=True))


def expands_to(shape: Sequence[Int], wanted: Sequence[Int]) -> bool:
    """Whether a tensor of this shape can be expanded to the shape `wanted`."""
    common = broadcast(wanted, shape)
    return common is not None and equal_sizes(common, wanted)


def iterator_strides(
    shape: tuple[int, ...], tensors: list[torch.Tensor], same_shape: bool
) -> list[int]:
    """Returns the strides of a fresh result: dense, with dimensions in the order of the inputs' strides.
    `same_shape`: whether all operands have this shape.

    Source: `reorder_dimensions` and `compute_fast_setup_type` of ATen's TensorIterator.
    """
    first = tensors[0]
    # If there are no elements, everything counts as contiguous.
    if same_shape and (all(t.is_contiguous() for t in tensors) or any(map(_is_zero_here, shape))):
        return strides_of(tuple(map(resolved, shape)))
    last = torch.channels_last
    if same_shape and len(shape) == 4 and all(t.is_contiguous(memory_format=last) for t in tensors):
        return list(dense_strides(shape, (1, 3, 2, 0)))
    same_strides = all(same_sizes(t.stride(), first.stride()) for t in tensors)
    if same_shape and same_strides and is_dense(first):
        return list(first.stride())
    permutation = _iterator_order(shape, tensors)
    if permutation == list(range(len(shape) - 1, -1, -1)):
        return strides_of(shape)
    strides: list[Int] = [0] * len(shape)
    step: Int = 1
    for d in permutation:
        strides[d] = step
        step = step * shape[d]
    return strides


def _iterator_order(shape: tuple[int, ...], tensors: list[torch.Tensor]) -> list[int]:
    """Returns the dimensions from the innermost to the outermost, in the order of the operands' strides."""
    # With current values, as for the operands: questions about these may have specialized some sizes.
    shape = tuple(map(resolved, shape))
    rank = len(shape)
    plain = list(range(rank - 1, -1, -1))
    operands = []
    for t in tensors:
        lead = rank - t.dim()
        own = [
            0 if _is_one(n) and not _is_one(m) else s
            for n, s, m in zip(t.shape, t.stride(), shape[lead:], strict=True)
        ]
        operands.append([0] * lead + own)
        repeated = [m for n, m in zip(t.shape, shape[lead:], strict=True) if _is_one(n)]
        # If these sizes are 1, nothing is repeated, and the operand's own strides count.
        note_not_1(repeated, is_plain=True)

    sizes = [n for some in (shape, *operands) for n in some if isinstance(n, Size)]
    if sizes and not any(map(unbacked_in, sizes)) and all(_in_order(shape, o) for o in operands):
        return plain

    def order(i: int, j: int) -> int:
        for strides in operands:
            a, b = strides[i], strides[j]
            if is_zero(a) or is_zero(b):
                continue
            if not same(a, b):
                if is_less(a, b):
                    return -1
                if is_less(b, a):
                    return 1
            if not same(shape[i], shape[j]) and is_less(shape[j], shape[i]):
                return 1
        return 0

    permutation = plain
    for i in range(1, rank):
        at = i
        for before in range(i - 1, -1, -1):
            comparison = order(permutation[before], permutation[at])
            if comparison > 0:
                permutation[before], permutation[at] = permutation[at], permutation[before]
                at = before
            elif comparison < 0:
                break
    return permutation


def note_not_1(sizes: Sequence[Int], is_plain: bool) -> None:
    """Assumes, as a layout assumption, that the sizes are not 1. `is_plain`: a size that is 1 in the captured
    call needs no assumption, because other sizes have the same layout."""
    for n in sizes:
        if isinstance(n, Size) and not (is_plain and hint_of(n) == 1):
            n.shape_env.is_one_deferred(n)


def _in_order(shape: Sequence[Int], strides: Sequence[Int]) -> bool:
    """Whether the stride of each dimension is at least the extent of the next one. Then the order is fixed,
    for any dimensions of size 1. A dimension of size 0 would go before one of size 1."""
    if any(map(is_zero, shape)):
        return False
    there = [d for d in range(len(shape)) if not is_zero(strides[d])]
    pairs = [(strides[j] * shape[j], strides[i]) for i, j in pairwise(there)]
    return all(hint_of(a) <= hint_of(b) for a, b in pairs) and all(a <= b for a, b in pairs)


def is_zero(n: Int) -> bool:
    return not isinstance(n, Size) and n == 0


def _is_zero_here(n: Int) -> bool:
    """Whether the size is 0 in the captured call; if so, this becomes a guard. That it is not 0 becomes only
    a layout assumption."""
    if not isinstance(n, Size):
        return is_zero(n)
    if hint_of(n) == 0 and not unbacked_in(n):
        return bool(n.shape_env.is_zero(n))
    n.shape_env.nonzero_deferred(n)
    return False


def _is_one(n: Int) -> bool:
    return not isinstance(n, Size) and n == 1


def is_one_here(n: Int) -> bool:
    """Whether the size is 1 in the captured call; if so, this becomes a guard."""
    return n.shape_env.is_one_deferred(n) if isinstance(n, Size) and hint_of(n) == 1 else _is_one(n)


def is_surely_contiguous(t: torch.Tensor) -> bool:
    """Whether `t` is contiguous; for symbolic sizes, whether that is certain."""
    return has_contiguous_strides(t) if isinstance(t, Sized) else t.is_contiguous()


def is_dense(t: torch.Tensor) -> bool:
    """Whether `t` has no gaps and no overlap: some permutation of its dimensions is contiguous. Dimensions of
    size 0 and 1 do not count.

    Source: `_compute_non_overlapping_and_dense` of c10.
    """
    if t.is_contiguous():
        return True
    if isinstance(t, Sized):
        by_stride = sorted(
            range(t.dim()), key=lambda d: (hint_of(t.stride(d)), hint_of(t.shape[d]))
        )
        if follows(t.shape, t.stride(), by_stride):
            return True
        # Another order could be dense, so guards keep this one.
        for inner, outer in pairwise(by_stride):
            is_less(t.stride(outer), t.stride(inner))
        return False
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def dense_like(t: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Returns a tensor with the layout of `empty_like`: without gaps, with the dimensions in the order of
    `t`. A size of 0 counts as 1.

    Source: `infer_dense_strides` of ATen's ExpandUtils.
    """
    dtype = dtype or t.dtype
    if is_dense(t):
        if isinstance(t, Sized):
            return empty_strided(t.shape, t.stride(), dtype)
        return torch.empty_strided(t.shape, t.stride(), dtype=dtype, device="meta")
    order = _iterator_order(tuple(t.shape), [t])
    return empty_strided(t.shape, dense_strides(t.shape, order), dtype)
