"""Rules of shapes/registry.py for copies and fresh tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.iteration import broadcast, dense_like, empty
from frameloom.capture.shapes.registry import FRESH, KEEPING, rule, sized_rule
from frameloom.capture.tensors.sized import empty_strided
from frameloom.ir.symbolic.expr import Int, Size

aten = torch.ops.aten
FRESH |= {aten.full.default, aten.arange.default}
KEEPING |= {aten.clone.default, aten._to_copy.default}


@rule(
    aten.clone.default, aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
    aten.rand_like.default, aten.randn_like.default, aten.randint_like.default, aten.randint_like.low_dtype,
)  # fmt: skip
@sized_rule(aten._to_copy.default)
def _like(
    func: Any, x: Any, *args: Any, dtype: Any = None, layout: Any = None, memory_format: Any = None, **options: Any
) -> Any:  # fmt: skip
    if layout not in (None, torch.strided):
        return None
    if memory_format is torch.contiguous_format:
        return empty(x.shape, dtype or x.dtype)
    return dense_like(x, dtype) if memory_format in (None, torch.preserve_format) else None


@rule(aten.fill.Scalar, aten.fill.Tensor, aten.uniform.default, aten.normal_functional.default)
def _filled(func: Any, x: Any, *args: Any, **options: Any) -> Any:
    if args and isinstance(args[0], torch.Tensor) and args[0].dim():
        return None
    return dense_like(x)


def _fresh_of(shape: Sequence[Int], dtype: torch.dtype, layout: Any = None) -> Any:
    """Returns a fresh tensor; None if a size is negative, which PyTorch refuses."""
    if layout not in (None, torch.strided) or any(n < 0 for n in shape):
        return None
    return empty(list(shape), dtype)


@sized_rule(
    aten.empty.memory_format, aten.zeros.default, aten.ones.default, aten.rand.default, aten.randn.default,
)  # fmt: skip
def _fresh(
    func: Any, shape: Sequence[Int], *, dtype: Any = None, layout: Any = None, memory_format: Any = None, **options: Any
) -> Any:  # fmt: skip
    if memory_format not in (None, torch.contiguous_format):
        return None
    return _fresh_of(shape, dtype or torch.get_default_dtype(), layout)


@sized_rule(aten.empty_strided.default)
def _empty_strided(
    func: Any, shape: Sequence[Int], strides: Sequence[Int], *, dtype: Any = None, **options: Any
) -> Any:
    return empty_strided(shape, strides, dtype or torch.get_default_dtype())


@sized_rule(aten.new_empty_strided.default)
def _new_empty_strided(
    func: Any, x: Any, shape: Sequence[Int], strides: Sequence[Int], *, dtype: Any = None, **options: Any
) -> Any:  # fmt: skip
    return empty_strided(shape, strides, dtype or x.dtype)


@sized_rule(aten.full.default)
def _full(
    func: Any, shape: Sequence[Int], value: Any, *, dtype: Any = None, layout: Any = None, **options: Any
) -> Any:  # fmt: skip
    if dtype is None:
        dtype = torch.int64 if isinstance(value, Size) else torch.full((), value).dtype
    return _fresh_of(shape, dtype, layout)


@sized_rule(
    aten.new_empty.default, aten.new_zeros.default, aten.new_ones.default, aten.new_full.default
)
def _new(
    func: Any, x: Any, shape: Sequence[Int], *value: Any, dtype: Any = None, **options: Any
) -> Any:
    return _fresh_of(shape, dtype or x.dtype)


@rule(aten.scalar_tensor.default)
def _scalar_tensor(func: Any, value: Any, *, dtype: Any = None, **options: Any) -> Any:
    return empty((), dtype or torch.get_default_dtype())


@sized_rule(aten.arange.default, aten.arange.start, aten.arange.start_step)
def _arange(func: Any, *args: Any, dtype: Any = None, **options: Any) -> Any:
    if any(isinstance(a, float | bool) for a in args):
        return None
    start, end = (0, args[0]) if len(args) == 1 else args[:2]
    step = args[2] if len(args) > 2 else 1
    if step == 0:
        return None
    count = (end - start + step - (1 if step > 0 else -1)) // step
    return empty([count], dtype or torch.int64) if count >= 0 else None


@sized_rule(aten.linspace.default)
def _linspace(
    func: Any, start: Any, end: Any, steps: Int, *, dtype: Any = None, **options: Any
) -> Any:
    return _fresh_of([steps], dtype or torch.get_default_dtype())


@sized_rule(aten.eye.default, aten.eye.m)
def _eye(func: Any, rows: Int, columns: Any = None, *, dtype: Any = None, **options: Any) -> Any:
    shape = [rows, rows if columns is None else columns]
    return _fresh_of(shape, dtype or torch.get_default_dtype())


@rule(
    aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.Tensor_Tensor, aten.poisson.default,
)  # fmt: skip
def _contiguous_draw(func: Any, x: Any, second: Any = None, **options: Any) -> Any:
    """The result is contiguous, for any layout of the parameters; the meta kernels depend on their layout."""
    given = [a for a in (x, second) if isinstance(a, torch.Tensor)]
    shape = broadcast(*(a.shape for a in given))
    numbers = [a for a in (second,) if isinstance(a, float)]
    if shape is None or given[-1].is_complex() or any(not a >= 0 for a in numbers):
        return None  # their meta kernels raise
    return empty(shape, given[0].dtype)
