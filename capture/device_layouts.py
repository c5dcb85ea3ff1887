"""Where results of an op are otherwise than its meta kernel says, which knows of no device.

A function gets the meta result and the op's arguments (Fakes), and returns the result as it is on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def _convolution(
    meta: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    """As the library that PyTorch would choose wants it: channels last if input or weight is."""
    if x.dim() == 3 or (x.device.type == "cpu" and x.is_contiguous() and weight.is_contiguous()):
        return meta
    backend = torch._C._select_conv_backend(
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, None
    )
    form = torch._C._conv_determine_backend_memory_format(x, weight, backend)
    return meta.contiguous(memory_format=form)


def _attention(meta: Any, query: Any, *others: Any, **options: Any) -> Any:
    """As the query lies: so the flash kernels leave it.  Others lay it out by positions first, which is how the query of
    a transformer lies, too."""
    order = sorted(range(query.dim()), key=lambda d: (-query.stride(d), d))
    dense = meta.new_empty([meta.shape[d] for d in order])
    return dense.permute([order.index(d) for d in range(len(order))])


def _layer_norm(meta: Any, *args: Any) -> Any:
    """Statistics are kept as they were computed."""
    out, *statistics = meta
    return out, *(s.float() if s.dtype in HALVES else s for s in statistics)


HALVES = (torch.float16, torch.bfloat16)
LAYOUTS: dict[tuple[str, Any], Callable[..., Any]] = {
    ("cpu", aten.convolution.default): _convolution,
    ("cuda", aten.convolution.default): _convolution,
    ("cuda", aten.native_layer_norm.default): _layer_norm,
    ("cuda", aten.scaled_dot_product_attention.default): _attention,
}
