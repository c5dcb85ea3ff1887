"""Everything about the shapes of convolutions: the sizes, the memory format, and what kernels refuse.

The memory format of results, and of the gradients of operands, depends on the library that PyTorch chooses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from frameloom.capture.shapes.derivative_rules import gradients_of
from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.iteration import empty, fresh, is_surely_contiguous
from frameloom.capture.shapes.probe import symbols_in, with_numbers
from frameloom.capture.shapes.refused import of_ints, refuse
from frameloom.capture.shapes.registry import KEEPING, layout, rule, sized_rule
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.sized import has_sizes, specialized
from frameloom.errors import Break
from frameloom.ir.symbolic.atoms import evaluated
from frameloom.ir.symbolic.expr import Int, hint_of

CONVOLUTION = torch.ops.aten.convolution.default
BACKWARD = torch.ops.aten.convolution_backward.default
TRIED = (1, 2, 7, 40)  # sizes
MOST = 3  # maximum number of symbols
KEEPING |= {CONVOLUTION, BACKWARD}
sized_rule(BACKWARD)(gradients_of("input", "weight", "bias_sizes"))
refuse(CONVOLUTION, device="cuda")(of_ints)


@refuse(CONVOLUTION)
def _has_no_channels(x: Any, weight: Any, *rest: Any) -> bool:
    return not weight.shape[0]  # only kernels check this


@rule(CONVOLUTION)
def _convolution(
    func: Any, x: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    """Computes sizes by the usual formula; contiguous input gives a contiguous result."""
    rank = x.dim() - 2
    if x.dim() != weight.dim() or rank < 1:
        return None
    if not transposed and x.shape[1] != weight.shape[1] * groups:
        raise RuntimeError("the weight is for another number of channels")
    shape = [x.shape[0], weight.shape[1] * groups if transposed else weight.shape[0]]
    for k in range(rank):
        s, p, d = (numbers[k % len(numbers)] for numbers in (stride, padding, dilation))
        n, reach = x.shape[2 + k], d * (weight.shape[2 + k] - 1)
        if transposed:
            shape.append((n - 1) * s - 2 * p + reach + output_padding[k % len(output_padding)] + 1)
        elif n + 2 * p - reach >= 1:
            shape.append((n + 2 * p - reach - 1) // s + 1)
        else:
            return None
    if not transposed and is_surely_contiguous(x) and is_surely_contiguous(weight):
        return empty(shape, x.dtype)
    given = (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    return with_hint_layout(func, given, {}, [shape])


@layout(CONVOLUTION)
def _convolution_on_device(meta: Any, x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """Returns the result in the format of the library that PyTorch would choose: channels last if input or
    weight is."""
    if x.dim() != 3 or (x.device.type == "cpu" and _is_plain(x) and _is_plain(weight)):
        result = _layout(x, weight, bias, *options)(meta)
    else:
        result = _of_rows(meta, x, weight, bias, *options) if x.device.type == "cpu" else meta
    # Meta kernels refuse fewer shapes, above all of transposed convolutions.
    if any((options[3] or type(n) is int) and n < 1 for n in result.shape[2:]):
        raise Break("op_error", f"{CONVOLUTION}: nothing is left of the image")
    return result


@layout(BACKWARD)
def _backward_on_device(
    meta: Any, grad: Any, x: Any, weight: Any, bias_sizes: Any, *options: Any
) -> Any:
    """Returns gradients with the layout of the convolution's result. For any layout of the incoming gradient;
    PyTorch 2.11 depends on that layout."""
    if x.dim() == 3:
        return meta
    apply_layout = _layout(x, weight, None, *options[:-1])
    results = [m if m is None else apply_layout(empty(m.shape, m.dtype)) for m in meta[:2]]
    return (*results, *meta[2:])


def _layout(x: Any, weight: Any, bias: Any, *options: Any) -> Callable[[Any], Any]:
    """Returns a function that gives a tensor the layout of the image convolution's result."""
    if x.device.type == "cpu" and _is_plain(x) and _is_plain(weight):
        return lambda meta: meta
    if not has_sizes(x.shape, weight.shape):
        memory_format = _format(x, weight, bias, *options)
    else:
        memory_format = _format(_at(x, hint_of), _at(weight, hint_of), bias, *options)
        if options[-1] == 1 and memory_format is torch.contiguous_format:
            return lambda meta: meta
        if not (x.device.type == "cpu" and _is_for_all(memory_format, x, weight, bias, *options)):
            return lambda meta: _in_format(specialized(meta), memory_format)
    return lambda meta: _in_format(meta, memory_format)


def _of_rows(meta: Any, x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """Returns the result as for images of one row. Their strides are channels-last only if the weight's
    are."""
    stride, padding, dilation, transposed, more, groups = options
    images = [1, *stride], [0, *padding], [1, *dilation], transposed, [0, *more], groups
    rows, windows = _at(x, hint_of).meta.contiguous(), _at(weight, hint_of).meta
    given = (Fake(t.unsqueeze(2), x.device) for t in (rows, windows))
    memory_format = _format(*given, bias, *images)
    if memory_format is torch.contiguous_format:
        return meta
    return _in_format(specialized(meta).unsqueeze(2), memory_format).squeeze(2)


def _is_plain(t: Any) -> bool:
    """Whether `t` is contiguous, also with regard to strides of dimensions of size 1: PyTorch looks at them,
    too."""
    shape, strides = ([hint_of(n) for n in numbers] for numbers in (t.shape, t.stride()))
    return t.is_contiguous() and strides == list(torch.empty(shape, device="meta").stride())


def _in_format(meta: Any, memory_format: torch.memory_format) -> torch.Tensor:
    """Returns a fresh tensor in this memory format. For sizes of 1, several formats are contiguous."""
    return fresh(meta.shape, meta.dtype, memory_format is not torch.contiguous_format)


def _format(x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """`options`: stride, padding, dilation, whether it is transposed, the output padding, the number of
    groups."""
    backend = torch._C._select_conv_backend(x, weight, bias, *options, None)
    return torch._C._conv_determine_backend_memory_format(x, weight, backend)


def _is_for_all(memory_format: Any, x: Any, weight: Any, *options: Any) -> bool:
    """Whether PyTorch chooses this format for other sizes, too. A few sizes of each kind are tried."""
    symbols = symbols_in((x.meta, weight.meta), MOST)
    if symbols is None:
        return False
    for values in itertools.product(TRIED, repeat=len(symbols)):
        at = dict(zip(symbols, values, strict=True)).__getitem__
        tensors = [_at(t, lambda n: evaluated(n, at)) for t in (x, weight)]
        if any(t.numel() == 0 for t in tensors):
            continue
        try:
            other = _format(*tensors, *options)
        except RuntimeError:  # too small for the kernel
            continue
        if other is not memory_format:
            return False
    return True


def _at(x: Any, value: Callable[[Int], int]) -> Fake:
    """Returns the tensor with numbers in place of sizes, without adding guards."""
    return Fake(with_numbers(x.meta, value), x.device)
