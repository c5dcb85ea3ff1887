"""The common rule of elementwise ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.iteration import (
    broadcast,
    dense_like,
    empty,
    is_one_here,
    is_zero,
    iterator_strides,
    same_sizes,
)
from frameloom.capture.tensors.sized import empty_strided, has_sizes
from frameloom.ir.symbolic.expr import Int, Size, hint_of

aten = torch.ops.aten
_POINTWISE_DTYPES: dict[Any, torch.dtype] = {}
# Overloads that turn a number into a tensor.
WRAPPING = (
    "Tensor", "Scalar", "Scalar_Other", "Scalar_Self", "Scalar_Tensor", "Tensor_Scalar", "Scalar_mode", "n_scalar", "x_scalar", "other_scalar",
    "self_scalar",
)  # fmt: skip
# Elementwise ops that have no pointwise tag.
UNTAGGED = (
    aten.floor_divide.default, aten.floor_divide.Scalar, aten.hardswish.default, aten.hardsigmoid.default, aten.mish_backward.default,
    aten._prelu_kernel.default, aten.silu_backward.default, aten.leaky_relu.default,  # not tagged in 2.11
)  # fmt: skip
# Ops whose kernels allocate the result by `empty_like`.
PRESERVING = (
    aten.hardtanh.default, aten.nan_to_num.default, aten.deg2rad.default,
    aten.rad2deg.default, aten._prelu_kernel.default,
)  # fmt: skip


def is_pointwise(func: Any) -> bool:
    return torch.Tag.pointwise in func.tags or func in UNTAGGED


def pointwise(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Infers one tensor result, broadcast from the tensor arguments, with the layout that TensorIterator
    chooses."""
    if len(func._schema.returns) != 1 or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    tensors += [a for a in kwargs.values() if isinstance(a, torch.Tensor)]
    if not tensors or any(isinstance(a, list | tuple) for a in args):
        return None
    dtype = pointwise_dtype(func, args, kwargs)
    if func is aten.pow.Scalar:  # for any strides of the exponent
        return empty(tensors[0].shape, dtype)
    if func in PRESERVING or (func is aten.abs.default and tensors[0].is_complex()):
        return dense_like(tensors[0], dtype)
    shape = broadcast(*(t.shape for t in tensors))
    if shape is None:
        return None
    if not has_sizes(shape) and all(
        same_sizes(t.shape, shape) and t.is_contiguous() for t in tensors
    ):
        result = empty(shape, dtype)
        there = 0 not in shape
        usual = there and all(same_sizes(t.stride(), result.stride()) for t in tensors)
        if usual or (there and 1 not in shape):
            return result
    same_shape = operands_share_shape(func, args, shape, tensors)
    return empty_strided(shape, iterator_strides(shape, tensors, same_shape), dtype)


def operands_share_shape(
    func: Any, args: Any, shape: Sequence[Int], tensors: Sequence[torch.Tensor]
) -> bool:
    """Whether all operands that a kernel iterates over have this shape. A number in place of a tensor counts
    as a tensor without dimensions."""
    if not all(same_sizes(t.shape, shape) for t in tensors):
        return False
    wrapping = func._overloadname in WRAPPING or func is aten.floor_divide.default
    one = len(tensors) == 1 < len(args) and wrapping and func is not aten.pow.Tensor_Scalar
    if not one or len(shape) < 2:  # one dimension has one order
        return True
    if not has_sizes(shape):
        return False
    # It makes a difference for sizes of 1; if there are no elements, it matters which sizes are 1.
    return not (any(map(is_zero, shape)) or any(map(is_one_here, shape)))


def tiny(a: Any) -> Any:
    """Returns the argument reduced to one element, on the CPU."""
    if isinstance(a, torch.Tensor):
        return torch.ones((1,) if a.dim() else (), dtype=a.dtype)
    return type(a)(map(tiny, a)) if isinstance(a, list | tuple) else hint_of(a)


def pointwise_dtype(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype:
    """Runs the op once on one-element tensors, so that PyTorch's own type promotion applies. The result is
    cached per op and argument types."""

    def key(a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            return (a.dtype, a.dim() > 0)
        return (
            int if isinstance(a, Size) else type(a) if isinstance(a, int | float | complex) else a
        )

    try:
        signature = (func, tuple(map(key, args)), tuple((k, key(v)) for k, v in kwargs.items()),
                     torch.get_default_dtype())  # fmt: skip
        dtype = _POINTWISE_DTYPES.get(signature)
    except TypeError:
        signature, dtype = None, None
    if dtype is None:
        dtype = func(*map(tiny, args), **{k: tiny(v) for k, v in kwargs.items()}).dtype
        if signature is not None:
            _POINTWISE_DTYPES[signature] = dtype
    return dtype
