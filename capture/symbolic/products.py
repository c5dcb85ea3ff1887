"""Decomposes matrix products of tensors with symbolic sizes, for older PyTorch, whose C++ code asks for plain
sizes.

A decomposition returns NotImplemented for cases that it does not cover."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from frameloom.capture.shapes.iteration import broadcast
from frameloom.capture.tensors.cast_cache import DEVICES, Casts, without_autocast
from frameloom.capture.tensors.sized import SizedFake
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.shape_env import ShapeEnv

ASKS_FOR_SIZES = torch.torch_version.TorchVersion(torch.__version__) < (2, 13)  # 2.11 does


def products_over(shape_env: ShapeEnv, casts: Casts) -> AbstractContextManager[Any]:
    """Returns a context in which products are decomposed, also those in PyTorch's functions that are written
    in Python."""
    return _DecomposedProducts(casts) if ASKS_FOR_SIZES and shape_env.symbols else nullcontext()


class _DecomposedProducts(TorchFunctionMode):
    def __init__(self, casts: Casts) -> None:
        super().__init__()
        self._casts = casts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:  # this mode is off inside
            return func(*_without_gaps(args[:3]), *args[3:], **kwargs)
        decomposition = _DECOMPOSITIONS.get(func)
        if decomposition is not None and not kwargs and any(isinstance(a, SizedFake) for a in args):
            result = self._outside_of_autocast(decomposition, args)
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)

    def _outside_of_autocast(self, decomposition: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Casts the operands as autocast does for the product, and runs the steps without autocast, which may
        treat them differently."""
        if any(torch.is_autocast_enabled(kind) for kind in DEVICES):
            args = tuple(self._casts.of_operand(a) for a in args)
        with without_autocast():
            return decomposition(*args)


def _without_gaps(tensors: tuple[Any, ...]) -> list[Any]:
    """Returns contiguous tensors, for which linear layers ask no sizes; equal arguments stay equal."""
    made = {id(t): t.contiguous() if isinstance(t, SizedFake) else t for t in tensors}
    return [made[id(t)] for t in tensors]


def matmul(a: Any, b: Any) -> Any:
    """Source: `_matmul_impl` and `should_fold` of ATen's LinearAlgebra.cpp."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dim() and b.dim()):
        return NotImplemented
    if a.dim() == 1 and b.dim() == 1:
        return a.dot(b)
    if a.dim() == 2 and b.dim() == 1:
        return a.mv(b)
    if a.dim() == 1 and b.dim() == 2:
        return a.unsqueeze(0).mm(b).squeeze_(0)
    if a.dim() == 2 and b.dim() == 2:
        return a.mm(b)
    if _folds(a, b):
        return _folded(a, b)
    if a.dim() == 3 and b.dim() == 3 and not same(a.shape[0], b.shape[0]):
        # As if one were a matrix, so that its gradient needs no large tensor.
        if a.requires_grad and same(a.shape[0], 1):
            return matmul(a.squeeze(0), b)
        if b.requires_grad and same(b.shape[0], 1):
            return matmul(a, b.squeeze(0))
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    if batch is None:
        return NotImplemented
    many = math.prod(batch)
    rows = a.shape[-2] if a.dim() > 1 else 1
    first = a.expand([*batch, rows, a.shape[-1]]).reshape([many, rows, a.shape[-1]])
    if b.dim() == 1:
        second = b.expand([*batch, b.shape[0]]).reshape([many, b.shape[0]]).unsqueeze(2)
        return torch.ops.aten._unsafe_view.default(first.bmm(second).squeeze(-1), [*batch, rows])
    second = b.expand([*batch, *b.shape[-2:]]).reshape([many, *b.shape[-2:]])
    shape = [*batch, *a.shape[-2:-1], b.shape[-1]]
    return torch.ops.aten._unsafe_view.default(first.bmm(second), shape)


def _folds(a: Any, b: Any) -> bool:
    """Whether the batches of the larger operand become rows of a matrix."""
    large, small = (a, b) if a.dim() >= b.dim() else (b.mT, a)
    if large.dim() < 3 or small.dim() > 2:
        return False
    if small.requires_grad:
        return True
    if a.dim() == 2:
        return False
    shape, strides = large.shape, large.stride()
    return all(same(strides[k], strides[k + 1] * shape[k + 1]) for k in range(large.dim() - 2))


def _folded(a: Any, b: Any) -> Any:
    swapped = b.dim() > a.dim()
    large, small = (b.mT, a.t() if a.dim() == 2 else a) if swapped else (a, b)
    rows = large.reshape([math.prod(large.shape[:-1]), large.shape[-1]])
    if small.dim() == 1:
        return torch.ops.aten._unsafe_view.default(rows.mv(small), large.shape[:-1])
    result = torch.ops.aten._unsafe_view.default(
        rows.mm(small), [*large.shape[:-1], small.shape[1]]
    )
    return result.mT.contiguous() if swapped else result


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """Source: `linear` of ATen's Linear.cpp. Where it adds the bias within the product, it asks for no
    sizes."""
    if (
        x.dim() < 2
        or weight.dim() != 2
        or (bias is not None and (x.dim() == 2 or x.is_contiguous()))
    ):
        return NotImplemented
    result = matmul(x, weight.t())
    return result if bias is None or result is NotImplemented else result + bias


_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__), matmul),
    F.linear: linear,
}
