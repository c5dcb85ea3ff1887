"""Recording rules for PyTorch functions that ask their tensors for plain sizes, for symbolic sizes.

A rule gets the recorder and then the function's own arguments; without symbolic sizes, it records the
function like any other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from frameloom.capture.tensors.sized import Sized
from frameloom.errors import Break
from frameloom.ir.symbolic.expr import Int, Size

aten = torch.ops.aten


def has_sizes(value: Any) -> bool:
    """Whether the arguments contain a symbolic size."""
    if isinstance(value, list | tuple):
        return any(map(has_sizes, value))
    if isinstance(value, Sized):
        return any(isinstance(n, Size) for n in value.shape)
    return isinstance(value, Size)


# --- resizing images

RESIZING: dict[tuple[str, int], Any] = {
    **{("nearest", n): getattr(aten, f"upsample_nearest{n}d").default for n in (1, 2, 3)},
    **{("nearest-exact", n): getattr(aten, f"_upsample_nearest_exact{n}d").default for n in (1, 2, 3)},
    ("linear", 1): aten.upsample_linear1d.default, ("bilinear", 2): aten.upsample_bilinear2d.default,
    ("trilinear", 3): aten.upsample_trilinear3d.default, ("bicubic", 2): aten.upsample_bicubic2d.default,
}  # fmt: skip


SMOOTHING = {
    "bilinear": aten._upsample_bilinear2d_aa.default, "bicubic": aten._upsample_bicubic2d_aa.default,
}  # fmt: skip


def _interpolate(
    recorder: Any,
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    n = input.dim() - 2
    op, is_nearest = RESIZING.get((mode, n)), mode.startswith("nearest")
    if antialias:
        op = SMOOTHING.get(mode) if n == 2 else None
    odd = recompute_scale_factor or (is_nearest and align_corners is not None)
    one = (size is None) is not (scale_factor is None)
    if not has_sizes((input, size)) or odd or not one or op is None or torch.are_deterministic_algorithms_enabled():  # fmt: skip
        given = (input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
        return recorder.run(F.interpolate, given, {})
    wanted = size if scale_factor is None else scale_factor
    wanted = list(wanted) if isinstance(wanted, list | tuple) else [wanted] * n
    scales: list[float | None] = [None] * n
    if scale_factor is not None:
        scales = [float(s) for s in wanted]
        wanted = [_scaled(m, s) for m, s in zip(input.shape[2:], wanted, strict=True)]
    corners = () if is_nearest else (bool(align_corners),)
    return recorder.run(op, (input, wanted, *corners, *scales), {})


def _scaled(n: Int, factor: float) -> Int:
    """Returns the floor of the product."""
    if factor == int(factor):
        return n * int(factor)
    if factor and 1 / factor == int(1 / factor) and math.log2(int(1 / factor)).is_integer():
        return n // int(1 / factor)
    return math.floor(float(int(n)) * factor)


def _max_pool1d(
    recorder: Any,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    windows = [kernel_size, kernel_size if stride is None else stride, padding, dilation]
    windows = [w[0] if isinstance(w, list | tuple) and len(w) == 1 else w for w in windows]
    if not has_sizes(input) or return_indices or any(type(w) is not int for w in windows):
        given = (input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
        return recorder.run(F.max_pool1d, given, {})
    pairs = [[other, w] for other, w in zip((1, 1, 0, 1), windows, strict=True)]

    def as_image(x: Any) -> Any:
        return F.max_pool2d(x.unsqueeze(-2), *pairs, ceil_mode).squeeze(-2)

    return recorder.run(as_image, (input,), {})


# --- numbers that ops take as plain ints


def _linspace(recorder: Any, start: Any, end: Any, steps: Any = None, **options: Any) -> Any:
    plain = all(type(n) in (int, float) for n in (start, end)) and options.keys() <= {"dtype"}
    if not isinstance(steps, Size) or not plain:
        return recorder.run(torch.linspace, (start, end, steps), options)
    dtype = options.get("dtype") or torch.get_default_dtype()
    named = {"dtype": dtype, "device": torch.get_default_device()}
    return recorder.pure(aten.linspace.default, (start, end, steps), named)


def _histc(recorder: Any, input: Any, bins: Any = 100, min: Any = 0, max: Any = 0) -> Any:
    plain = (
        all(type(n) in (int, float) for n in (min, max)) and not recorder.current_call.is_followed
    )
    if not isinstance(bins, Size) or not plain:
        return recorder.run(torch.histc, (input, bins, min, max), {})
    return recorder.pure(aten.histc.default, (input, bins, min, max), {})


# --- views


def _diagonal(function: Any) -> Callable[..., Any]:
    def record(recorder: Any, input: Any, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Any:
        if not isinstance(offset, Size):
            return recorder.run(function, (input, offset, dim1, dim2), {})
        return recorder.run(diagonal_of_rest, (input, offset, dim1, dim2), {})

    return record


def diagonal_of_rest(x: Any, offset: Any, dim1: int, dim2: int) -> Any:
    """Returns the diagonal of the tensor without the rows or columns before it."""
    before = (slice(None),) * ((dim1 if offset < 0 else dim2) % x.dim())
    rest = x[(*before, slice(abs(offset), None))]
    if rest.shape[dim1] == 0 or rest.shape[dim2] == 0:
        # the result has the storage offset of the tensor
        return x.diagonal(int(offset), dim1, dim2)
    return rest.diagonal(0, dim1, dim2)


def _unfold(recorder: Any, input: Any, dimension: int, size: Any, step: Any) -> Any:
    if not has_sizes((size, step)) or recorder.current_call.is_followed or not input.dim():
        return recorder.run(torch.Tensor.unfold, (input, dimension, size, step), {})
    return recorder.run(windows, (input, dimension, size, step), {})


def windows(x: Any, dim: int, size: Any, step: Any) -> Any:
    """`x.unfold(dim, size, step)`."""
    shape, strides = list(x.shape), list(x.stride())
    dim = range(len(shape))[dim]
    n = shape[dim]
    if size < 0 or size > n or step < 1:
        raise RuntimeError("sizes of windows do not fit")
    shape[dim] = (n - size) // step + 1
    strides = [*strides[:dim], strides[dim] * step, *strides[dim + 1 :], strides[dim]]
    return x.as_strided([*shape, size], strides, x.storage_offset())


# --- recurrent layers


def _recurrent(fn: Callable[..., Any], op: Any) -> Callable[..., Any]:
    """Records a layer as one library call: decomposed into steps, it would be another program for each
    length."""

    def record(recorder: Any, *given: Any, **named: Any) -> Any:
        if "batch_sizes" in named or (len(given) > 3 and isinstance(given[3], list | tuple)):
            # It accesses memory, which recorded tensors do not have; with symbolic sizes, it does not check
            # that.
            raise Break("data_dependent", f"{fn.__name__} of a packed sequence")
        if named or len(given) < 3:
            return recorder.run(fn, given, named)
        input, _, params, *rest = given
        plain = (
            isinstance(params, list | tuple)
            and len(rest) == 6
            and not recorder.current_call.is_followed
        )
        if not plain or not has_sizes(input) or _draws(rest) or _has_projection(params, rest):
            return recorder.run(fn, given, {})
        if torch.is_autocast_enabled(input.device.type):
            return recorder.run(fn, given, {})
        return recorder.pure(op, given, {})

    return record


def _draws(rest: Sequence[Any]) -> bool:
    _, layers, dropout, training, _, _ = rest
    return bool(training and dropout and layers > 1)


def _has_projection(params: Sequence[Any], rest: Sequence[Any]) -> bool:
    has_biases, layers, _, _, both, _ = rest
    return len(params) != layers * (2 if both else 1) * (4 if has_biases else 2)


SIZED_CALLS: dict[Any, Callable[..., Any]] = {
    F.interpolate: _interpolate,
    F.max_pool1d: _max_pool1d,
    torch.linspace: _linspace,
    torch.histc: _histc,
    torch.Tensor.histc: _histc,
    torch.diagonal: _diagonal(torch.diagonal),
    torch.Tensor.diagonal: _diagonal(torch.Tensor.diagonal),
    torch.Tensor.unfold: _unfold,
    **{
        getattr(torch, name): _recurrent(getattr(torch, name), getattr(aten, name).input)
        for name in ("gru", "lstm", "rnn_tanh", "rnn_relu")
    },
}
