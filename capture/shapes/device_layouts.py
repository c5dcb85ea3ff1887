"""Corrects the results of ops whose meta kernel differs from the kernel of a device, because it does not know
the device. Corrections of one op are registered beside its rule (`layout`)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.iteration import dense_like, empty, iterator_strides
from frameloom.capture.shapes.loss_rules import ITERATED
from frameloom.capture.shapes.pointwise import (
    PRESERVING,
    is_pointwise,
    operands_share_shape,
    pointwise,
    pointwise_dtype,
)
from frameloom.capture.shapes.registry import LAYOUTS, RULES, as_known, layout
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.sized import empty_strided, has_sizes

aten = torch.ops.aten
ASKED = 1 << 16  # maximum elements of tensors for which the library op is run


def on_device(device: torch.device, func: Any, meta: Any, args: Any, kwargs: Any) -> Any:
    """Returns the result of an op on Fakes as the device computes it."""
    if (layout := LAYOUTS.get((device.type, func))) is not None:
        return as_known(layout(meta, *args, **kwargs))
    return as_converted(func, meta, args, kwargs) if device.type == "cpu" else meta


def as_converted(func: Any, meta: Any, args: Any, kwargs: Any) -> Any:
    """The CPU's kernels first convert operands of other dtypes, which makes them dense. Their strides are
    then those that decide the layout of the result."""
    operands = [a for a in (*args, *kwargs.values()) if isinstance(a, Fake)]
    if not operands or not isinstance(meta, torch.Tensor):
        return meta
    iterates = is_pointwise(func) and func not in RULES and func not in PRESERVING
    if func is aten.pow.Scalar or not (iterates or (func in ITERATED and meta.dim())):
        return meta
    dtype = meta.dtype
    if dtype is torch.bool:
        dtype = _compared_as(args)
    others = [a.dtype for a in operands if a.dtype is not dtype and a.dim()]
    if not others or any(torch.promote_types(d, dtype) is not dtype for d in others):
        return meta
    converted = [a.meta if a.dtype is dtype else dense_like(a.meta) for a in operands]
    shape = tuple(meta.shape)
    strides = iterator_strides(shape, converted, operands_share_shape(func, args, shape, operands))
    return empty_strided(shape, strides, meta.dtype)


def _compared_as(args: Sequence[Any]) -> torch.dtype:
    """Returns the dtype in which tensors and numbers are compared."""
    dtypes = [a.dtype for a in args if isinstance(a, Fake)]
    dtype = functools.reduce(torch.promote_types, dtypes)
    if any(isinstance(a, float) for a in args) and not (
        dtype.is_floating_point or dtype.is_complex
    ):
        return torch.get_default_dtype()
    return dtype


@layout(aten.ldexp.Tensor)
def _ldexp(meta: Any, x: Any, exponent: Any) -> Any:
    """Some pairs of dtypes have a kernel; else the power of two is a fresh tensor of its own. For small
    tensors the library op is run."""
    if not has_sizes(meta.shape) and meta.numel() <= ASKED:
        given = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu").zero_()
            for t in (x, exponent)
        ]
        return empty_strided(meta.shape, torch.ldexp(*given).stride(), meta.dtype)
    power = Fake(
        empty(exponent.shape, pointwise_dtype(aten.pow.Scalar, (2.0, exponent.meta), {})),
        meta.device,
    )
    product = pointwise(aten.mul.Tensor, x.meta, power.meta)
    converted = as_converted(aten.mul.Tensor, product, (x, power), {})
    # 16-bit floats do not become wider ones.
    return empty_strided(meta.shape, converted.stride(), meta.dtype)
