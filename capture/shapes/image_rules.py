"""Rules for ops on images and signals with symbolic sizes: windows, padding, resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.dynamic_rules import as_suggested
from frameloom.capture.shapes.refused_dtypes import UPSAMPLING
from frameloom.capture.shapes.registry import empty, sized_rule
from frameloom.ir.symbolic.expr import Int

aten = torch.ops.aten


def _pooled(
    n: Int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool
) -> Int | None:
    """Source: `pooling_output_shape` of ATen's Pool.h."""
    reach = n + 2 * padding - dilation * (kernel - 1) - 1
    if not reach >= 0:
        return None
    if not ceil:
        return reach // stride + 1
    out = (reach + stride - 1) // stride + 1
    return out - 1 if (out - 1) * stride >= n + padding else out


def _has_all(*sizes: Int) -> bool:
    """Whether no size but the batch is 0: kernels refuse other images."""
    return all(n > 0 for n in sizes)


def _pair(value: Any, otherwise: Any = None) -> tuple[int, int]:
    value = otherwise if not isinstance(value, int) and not len(value) else value
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


@sized_rule(aten.max_pool2d_with_indices.default, aten.avg_pool2d.default)
def _pool2d(
    func: Any, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, *rest: Any, **options: Any
) -> Any:
    average = func is aten.avg_pool2d.default
    if options or x.dim() not in (3, 4) or not _has_all(*x.shape[-3:]):
        return None
    dilation = _pair(1 if average or not rest else rest[0])
    ceil = bool(rest[0 if average else 1]) if len(rest) > (0 if average else 1) else False
    kernel = _pair(kernel)
    stride, padding = _pair(stride, kernel), _pair(padding)
    sizes = [
        _pooled(x.shape[k - 2], kernel[k], stride[k], padding[k], dilation[k], ceil)
        for k in range(2)
    ]
    halves = [(dilation[k] * (kernel[k] - 1) + 1) // 2 for k in range(2)]
    if None in sizes or any(not 0 <= padding[k] <= halves[k] for k in range(2)):
        return None
    return _results(x, [*x.shape[:-2], *sizes], not average)


@sized_rule(aten._adaptive_avg_pool2d.default, aten.adaptive_max_pool2d.default)
def _adaptive(func: Any, x: Any, size: Sequence[Int]) -> Any:
    if x.dim() not in (3, 4) or not _has_all(*x.shape[1:]):
        return None
    return _results(x, [*x.shape[:-2], *size], func is aten.adaptive_max_pool2d.default)


def _results(x: Any, shape: Sequence[Int], with_places: bool) -> Any:
    values = as_suggested(x, shape)
    if not with_places:
        return values
    return values, as_suggested(x, shape, torch.int64)


SMOOTHED = ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")


@sized_rule(*(getattr(aten, name).default for name in (*UPSAMPLING, *SMOOTHED)))
def _upsample(func: Any, x: Any, size: Sequence[Int], *rest: Any) -> Any:
    if x.dim() != len(size) + 2 or not all(n > 0 for n in size):
        return None
    return as_suggested(x, [*x.shape[:2], *size])


@sized_rule(aten.im2col.default)
def _im2col(
    func: Any, x: Any, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int],
) -> Any:  # fmt: skip
    if x.dim() != 4 or not _has_all(*x.shape[1:]):
        return None
    places: Int = 1
    for d, n in enumerate(x.shape[2:]):
        extent = _pooled(n, kernel[d], stride[d], padding[d], dilation[d], False)
        if extent is None:
            return None
        places = places * extent
    return empty([x.shape[0], x.shape[1] * kernel[0] * kernel[1], places], x.dtype)


@sized_rule(aten.col2im.default)
def _col2im(
    func: Any, x: Any, size: Sequence[Int], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> Any:  # fmt: skip
    if x.dim() != 3 or not _has_all(*x.shape[1:]):
        return None
    places: Int = 1
    for d, n in enumerate(size):
        extent = _pooled(n, kernel[d], stride[d], padding[d], dilation[d], False)
        if extent is None:
            return None
        places = places * extent
    channels, rest = divmod(x.shape[1], kernel[0] * kernel[1])
    if rest != 0 or x.shape[2] != places:
        return None
    return empty([x.shape[0], channels, *size], x.dtype)


@sized_rule(aten.pixel_shuffle.default)
def _pixel_shuffle(func: Any, x: Any, factor: int) -> Any:
    if x.dim() != 4 or factor < 1 or x.shape[1] % (factor * factor) != 0:
        return None
    b, c, h, w = x.shape
    return as_suggested(x, [b, c // (factor * factor), h * factor, w * factor])


@sized_rule(aten.pixel_unshuffle.default)
def _pixel_unshuffle(func: Any, x: Any, factor: int) -> Any:
    if x.dim() != 4 or factor < 1 or not x.is_contiguous():
        return None
    b, c, h, w = x.shape
    if h % factor != 0 or w % factor != 0:
        return None
    return empty([b, c * factor * factor, h // factor, w // factor], x.dtype)


@sized_rule(aten.affine_grid_generator.default)
def _affine_grid(func: Any, theta: Any, size: Sequence[Int], corners: bool) -> Any:
    return empty([size[0], *size[2:], 2], theta.dtype) if len(size) == 4 else None


@sized_rule(aten.grid_sampler_2d.default)
def _grid_sampler(func: Any, x: Any, grid: Any, *rest: Any) -> Any:
    if x.dim() != 4 or grid.dim() != 4 or x.dtype is not grid.dtype or x.shape[0] != grid.shape[0]:
        return None
    if not (x.shape[2] > 0 and x.shape[3] > 0):
        return None
    return empty([*x.shape[:2], *grid.shape[1:3]], x.dtype)
