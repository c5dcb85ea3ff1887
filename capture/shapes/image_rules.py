"""Everything about the shapes of ops on images and signals: windows, padding, resizing; sizes, layouts, and what
kernels refuse. Rules are mostly for symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch._prims_common

from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.iteration import as_suggested, empty, fresh
from frameloom.capture.shapes.refused import of_ints, overloads, refuse
from frameloom.capture.shapes.registry import KEEPING, layout, rule, sized_rule
from frameloom.capture.tensors.sized import SizedMeta, has_sizes
from frameloom.ir.symbolic.expr import Int

aten = torch.ops.aten
KEEPING |= {
    aten.max_pool2d_with_indices.default, aten.avg_pool2d.default, aten._adaptive_avg_pool2d.default,
}  # fmt: skip
UPSAMPLING = tuple(getattr(aten, name) for name in (
    *(f"{mode}{n}d" for n in (1, 2, 3) for mode in ("upsample_nearest", "_upsample_nearest_exact")),
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
))  # fmt: skip
SMOOTHED = (aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa)
PADS = {n: [getattr(aten, f"{mode}_pad{n}d").default for mode in ("reflection", "replication")] for n in (1, 2, 3)}  # fmt: skip
PAD_DERIVATIVES = [getattr(aten, f"{mode}_pad{n}d_backward").default for mode in ("reflection", "replication") for n in (2, 3)]  # fmt: skip


def in_format_of(x: Any, out: Any) -> Any:
    """Returns a result with the memory format of the input; without elements, that of a fresh tensor."""
    if has_sizes(out.shape):
        return as_suggested(x.meta, list(out.shape), out.dtype)
    last = torch._prims_common.suggest_memory_format(x) is not torch.contiguous_format
    return fresh(out.shape, out.dtype, last and x.numel() > 0)


@layout(
    aten.max_unpool2d.default, aten.channel_shuffle.default, aten.pixel_shuffle.default, *PADS[2], *PADS[3], devices=("cpu",)
)  # fmt: skip
def _as_input(meta: Any, x: Any, *args: Any) -> Any:
    return in_format_of(x, meta)


@layout(*PAD_DERIVATIVES, devices=("cpu",))
def _as_second(meta: Any, grad: Any, x: Any, *args: Any) -> Any:
    return in_format_of(x, meta)


# --- windows


@refuse(
    aten.avg_pool2d.default, aten.avg_pool3d.default, aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default,
    device="cuda",
)  # fmt: skip
def _not_of_floats(x: Any, *rest: Any) -> bool:
    return not x.is_floating_point()


@refuse(*overloads(aten._adaptive_avg_pool2d, aten._adaptive_avg_pool3d))
def _is_of_nothing(x: Any, *rest: Any) -> bool:
    return _is_empty(x.shape[1:])


refuse(aten._adaptive_avg_pool3d.default)(of_ints)


def _is_empty(sizes: Sequence[Int]) -> bool:
    return any(type(n) is int and n == 0 for n in sizes)


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


@refuse(*overloads(aten.im2col))
def _unfolds_badly(
    x: Any, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Any, **options: Any
) -> bool:  # fmt: skip
    return min(padding) < 0 or (of_ints(x) and x.dtype is not torch.bool)


def _places(
    size: Sequence[Int], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Int | None:  # fmt: skip
    """Returns the number of windows."""
    places: Int = 1
    for d, n in enumerate(size):
        extent = _pooled(n, kernel[d], stride[d], padding[d], dilation[d], False)
        if extent is None:
            return None
        places = places * extent
    return places


@rule(aten.im2col.default)
def _im2col(func: Any, x: Any, kernel: Sequence[int], *windows: Any) -> Any:
    """The kernel writes into a fresh tensor; the meta kernel permutes."""
    if not isinstance(x, SizedMeta):
        result = func(x, kernel, *windows)
        return empty(result.shape, result.dtype)
    if x.dim() != 4 or not _has_all(*x.shape[1:]):
        return None
    places = _places(x.shape[2:], kernel, *windows)
    if places is None:
        return None
    return empty([x.shape[0], x.shape[1] * kernel[0] * kernel[1], places], x.dtype)


@sized_rule(aten.col2im.default)
def _col2im(
    func: Any, x: Any, size: Sequence[Int], kernel: Sequence[int], *windows: Sequence[int]
) -> Any:
    if x.dim() != 3 or not _has_all(*x.shape[1:]):
        return None
    places = _places(size, kernel, *windows)
    channels, rest = divmod(x.shape[1], kernel[0] * kernel[1])
    if places is None or rest != 0 or x.shape[2] != places:
        return None
    return empty([x.shape[0], channels, *size], x.dtype)


# --- resizing, padding and pixels


@sized_rule(*(packet.default for packet in (*UPSAMPLING, *SMOOTHED)))
def _upsample(func: Any, x: Any, size: Sequence[Int], *rest: Any) -> Any:
    if x.dim() != len(size) + 2 or not all(n > 0 for n in size):
        return None
    return as_suggested(x, [*x.shape[:2], *size])


@layout(*(packet.default for packet in UPSAMPLING))
def _interpolated(meta: Any, x: Any, *args: Any) -> Any:
    """The result has the memory format of the input, also if sizes of 1 make the strides ambiguous."""
    if isinstance(meta, SizedMeta):  # the rule has inferred it
        return meta
    last = torch._prims_common.suggest_memory_format(x) is not torch.contiguous_format
    return fresh(meta.shape, meta.dtype, last)


refuse(*overloads(aten.upsample_bilinear2d, aten.upsample_bicubic2d, *SMOOTHED), device="cuda")(of_ints)  # fmt: skip


@refuse(*overloads(*UPSAMPLING))
def _resizes_nothing(x: torch.Tensor, size: Any = None, *rest: Any, **options: Any) -> bool:
    """Whether the image, or the resized one, has no elements. In the overload with factors instead of sizes,
    the factors are the last argument."""
    if size is None:
        known = zip(x.shape[2:], rest[-1], strict=True)
        size = [int(n * factor) for n, factor in known if type(n) is int]
    return _is_empty(x.shape) or _is_empty(size)


@sized_rule(*PADS[1], *PADS[2])
def _mirrored(func: Any, x: Any, pads: Sequence[Int]) -> Any:
    shape = list(x.shape)
    for k in range(len(pads) // 2):
        n = shape[-1 - k]
        if not all(p < n for p in pads[2 * k : 2 * k + 2]):
            return None
        shape[-1 - k] = n + pads[2 * k] + pads[2 * k + 1]
    return with_hint_layout(func, (x, pads), {}, [shape])


@refuse(*(PADS[n][0] for n in PADS))
def _mirrors_bools(x: Any, *rest: Any) -> bool:
    return x.dtype is torch.bool


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


@layout(aten.pixel_unshuffle.default, devices=("cpu",))
def _unshuffled_nothing(meta: Any, x: Any, factor: int) -> Any:
    """A result without elements is a copy."""
    return meta if x.numel() else x.meta.clone()


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
