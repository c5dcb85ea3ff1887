"""Where the result of a library op lies on a GPU otherwise than its meta kernel says, which knows of no device.

A function gets the meta result and the op's arguments (Fakes), and returns the result as the GPU's library lays it out.
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
    if x.dim() == 3:
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


GPU_LAYOUTS: dict[Any, Callable[..., Any]] = {
    aten.convolution.default: _convolution,
    aten.scaled_dot_product_attention.default: _attention,
}
