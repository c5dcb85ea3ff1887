"""Makes tensors through Python, for a PyTorch that lacks the C symbols that the native plan uses, and for
rare dtypes.

Called from the C++ code in torch_abi/; slower, but otherwise the same.  `strided_view` and `set_count` are
also called from jit/autograd/result_views.py.
"""

from __future__ import annotations

from typing import Any

import torch


def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """Returns a new tensor with exactly these strides."""
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def view(
    base: Any, byte_offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any
) -> Any:
    """Returns a tensor over the memory of `base`, `byte_offset` after its first element, possibly of another
    dtype."""
    result = torch.empty(0, dtype=dtype, device=base.device)
    start = base.storage_offset() * base.element_size() + byte_offset
    with torch.no_grad():
        return result.set_(base.untyped_storage(), start // result.element_size(), shape, strides)


def strided_view(
    base: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any
) -> Any:
    """Returns a view of an input that eager PyTorch knows as a view, so that writes to it are counted;
    `offset` is in elements of `dtype`."""
    if dtype != base.dtype:
        return _as_other(base, offset * dtype.itemsize, shape, strides, dtype)
    return base.as_strided(shape, strides, base.storage_offset() + offset)


def _as_other(
    base: Any, byte_offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any
) -> Any:
    """Returns the memory of `base` as elements of another dtype: writes to them count as writes to `base`.
    As in eager, autograd knows the views between complex numbers and their parts; `view(dtype)` makes no such
    view."""
    # The memory from the first to the last element and nothing else: a gradient of `base` has as much memory.
    parts = max(dtype.itemsize // base.element_size(), 1)
    first = base.storage_offset() // parts * parts
    reach = 1 + sum((n - 1) * step for n, step in zip(base.shape, base.stride(), strict=True))
    count = base.storage_offset() + reach - first if base.numel() else 0
    whole = base.as_strided((count - count % parts,), (1,), first)
    start = (base.storage_offset() * base.element_size() + byte_offset) // dtype.itemsize
    if base.dtype.is_complex and base.dtype.to_real() == dtype:
        return torch.view_as_real(whole).as_strided(shape, strides, start)
    if dtype.is_complex and dtype.to_real() == base.dtype:
        return torch.view_as_complex(whole.view(-1, 2)).as_strided(shape, strides, start)
    with torch.no_grad():
        return whole.view(dtype).as_strided(shape, strides, start).detach()


def matches(tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> bool:
    """Whether a library call returned the planned strides; those of dimensions of size 1 do not matter.
    Raises if shape or dtype differ."""
    if tuple(tensor.shape) != tuple(shape) or tensor.dtype != dtype:
        raise RuntimeError(
            f"a library call returned {tensor.dtype} {list(tensor.shape)}, planned was {dtype} {list(shape)}"
        )
    if tensor.numel() == 0:
        return True
    return all(n == 1 or a == b for n, a, b in zip(shape, tensor.stride(), strides, strict=True))


def restride(tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Returns a copy of `tensor` with these strides."""
    result = empty(shape, strides, tensor.dtype, tensor.device)
    return result.copy_(tensor.detach())


def set_count(tensor: Any, count: int) -> bool:
    """Sets the number of writes to a tensor and its views that autograd has counted, and returns whether it
    was another.  Nothing is counted for a tensor made in inference mode."""
    changes = not tensor.is_inference() and tensor._version != count
    if changes:
        torch._C._autograd._unsafe_set_version_counter((tensor,), (count,))
    return changes


def with_count(tensor: Any, count: int) -> Any:
    """Returns the tensor with this number of writes.  A view stores its base's number when it is made, so it
    is made again."""
    if not set_count(tensor, count) or not tensor._is_view():
        return tensor
    base = tensor._base
    offset = tensor.storage_offset() - base.storage_offset() * base.itemsize // tensor.itemsize
    return strided_view(base, offset, tensor.shape, tensor.stride(), tensor.dtype)
