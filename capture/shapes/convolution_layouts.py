"""The memory format of convolutions' results and of their operands' gradients. It depends on the library that
PyTorch chooses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from frameloom.capture.shapes.registry import empty
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.sized import dense_strides, empty_strided, has_sizes, specialized
from frameloom.ir.symbolic.atoms import atoms_of, evaluated, unbacked_in
from frameloom.ir.symbolic.expr import Int, Size, hint_of

TRIED = (1, 2, 7, 40)  # sizes
MOST = 3  # maximum number of symbols


def convolution(meta: Any, x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """Returns the result in the format of the library that PyTorch would choose: channels last if input or
    weight is."""
    if x.dim() == 3 and not (x.device.type == "cpu" and _is_plain(x) and _is_plain(weight)):
        return (
            _convolution_of_rows(meta, x, weight, bias, *options)
            if x.device.type == "cpu"
            else meta
        )
    return _layout(x, weight, bias, *options)(meta)


def _layout(x: Any, weight: Any, bias: Any, *options: Any) -> Callable[[Any], Any]:
    """Returns a function that gives a tensor the layout of the image convolution's result."""
    if x.device.type == "cpu" and _is_plain(x) and _is_plain(weight):
        return lambda meta: meta
    if not has_sizes(x.shape, weight.shape):
        memory_format = _convolution_format(x, weight, bias, *options)
        return lambda meta: in_memory_format(meta, memory_format)
    memory_format = _convolution_format(_as_captured(x), _as_captured(weight), bias, *options)
    if options[-1] == 1 and memory_format is torch.contiguous_format:
        return lambda meta: meta
    if x.device.type == "cpu" and _has_format_for_all(memory_format, x, weight, bias, *options):
        rank = x.dim()
        order = range(rank - 1, -1, -1) if memory_format is torch.contiguous_format else (1, *range(rank - 1, 1, -1), 0)  # fmt: skip
        return lambda meta: empty_strided(meta.shape, dense_strides(meta.shape, order), meta.dtype)
    return lambda meta: in_memory_format(specialized(meta), memory_format)


def convolution_backward(
    meta: Any, grad: Any, x: Any, weight: Any, bias_sizes: Any, *options: Any
) -> Any:
    """Returns gradients with the layout of the convolution's result. For any layout of the incoming gradient;
    PyTorch 2.11 depends on that layout."""
    if x.dim() == 3:
        return meta
    apply_layout = _layout(x, weight, None, *options[:-1])
    results = [m if m is None else apply_layout(empty(m.shape, m.dtype)) for m in meta[:2]]
    return (*results, *meta[2:])


def _convolution_of_rows(meta: Any, x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """Returns the result as for images of one row. Their strides are channels-last only if the weight's
    are."""
    stride, padding, dilation, transposed, more, groups = options
    images = [1, *stride], [0, *padding], [1, *dilation], transposed, [0, *more], groups
    memory_format = _convolution_format(_as_image(x, True), _as_image(weight, False), bias, *images)
    if memory_format is torch.contiguous_format:
        return meta
    return in_memory_format(specialized(meta).unsqueeze(2), memory_format).squeeze(2)


def _as_image(t: Any, contiguous: bool) -> Fake:
    """Returns the tensor as an image of one row, with the sizes of the captured call."""
    row = torch.empty_strided(
        [hint_of(n) for n in t.shape], [hint_of(n) for n in t.stride()], dtype=t.dtype, device="meta"
    )  # fmt: skip
    return Fake((row.contiguous() if contiguous else row).unsqueeze(2), t.device)


def _is_plain(t: Any) -> bool:
    """Whether `t` is contiguous, also with regard to strides of dimensions of size 1: PyTorch looks at them,
    too."""
    shape, strides = ([hint_of(n) for n in numbers] for numbers in (t.shape, t.stride()))
    return t.is_contiguous() and strides == list(torch.empty(shape, device="meta").stride())


def in_memory_format(meta: Any, memory_format: torch.memory_format) -> torch.Tensor:
    """Returns a fresh tensor in this memory format. For sizes of 1, several formats are contiguous."""
    return torch.empty(meta.shape, dtype=meta.dtype, device="meta", memory_format=memory_format)


def _convolution_format(x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """`options`: stride, padding, dilation, whether it is transposed, the output padding, the number of
    groups."""
    backend = torch._C._select_conv_backend(x, weight, bias, *options, None)
    return torch._C._conv_determine_backend_memory_format(x, weight, backend)


def _has_format_for_all(memory_format: Any, x: Any, weight: Any, *options: Any) -> bool:
    """Whether PyTorch chooses this format for other sizes, too. A few sizes of each kind are tried."""
    numbers = [n for t in (x, weight) for n in (*t.shape, *t.stride()) if isinstance(n, Size)]
    symbols = sorted({s for n in numbers for s in atoms_of(n)}, key=lambda s: s.name)
    if len(symbols) > MOST or any(map(unbacked_in, numbers)):
        return False
    for values in itertools.product(TRIED, repeat=len(symbols)):
        at = dict(zip(symbols, values, strict=True)).__getitem__
        tensors = [_with_sizes(t, lambda n: evaluated(n, at)) for t in (x, weight)]
        if any(t.numel() == 0 for t in tensors):
            continue
        try:
            other = _convolution_format(*tensors, *options)
        except RuntimeError:  # too small for the kernel
            continue
        if other is not memory_format:
            return False
    return True


def _as_captured(x: Any) -> Fake:
    """Returns the tensor with the sizes of the captured call, without adding guards."""
    return _with_sizes(x, hint_of)


def _with_sizes(x: Any, value: Callable[[Int], int]) -> Fake:
    shape, strides = ([value(n) for n in numbers] for numbers in (x.shape, x.stride()))
    return Fake(torch.empty_strided(shape, strides, dtype=x.dtype, device="meta"), x.device)
