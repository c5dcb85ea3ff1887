"""Sizes of the results of derivatives (`aten.*_backward`) where sizes vary.

A gradient has the shape of what it is a gradient of, which is an argument.  How it lies in memory is what the meta kernel says of the sizes of
the captured call, if that is one tensor without gaps in some order of the dimensions: then it is that for other sizes, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes import infer, sized_rule
from frameloom.capture.sized import SizedMeta, dense_strides, empty_strided
from frameloom.ir.size import Int, hint_of

aten = torch.ops.aten
# What the results are gradients of: arguments that are tensors or their shapes.
OF = {
    "native_layer_norm_backward": ("input", "normalized_shape", "normalized_shape"),
    "native_group_norm_backward": ("input", "channels", "channels"),
    "native_batch_norm_backward": ("input", "channels", "channels"),
    "convolution_backward": ("input", "weight", "bias_sizes"),
    "_scaled_dot_product_flash_attention_for_cpu_backward": ("query", "key", "value"),
    "_scaled_dot_product_flash_attention_backward": ("query", "key", "value"),
    "_scaled_dot_product_cudnn_attention_backward": ("query", "key", "value"),
    "_scaled_dot_product_efficient_attention_backward": ("query", "key", "value", "attn_bias"),
    "grid_sampler_2d_backward": ("input", "grid"),
    "grid_sampler_3d_backward": ("input", "grid"),
    "_prelu_kernel_backward": ("self", "self"),
    "_weight_norm_interface_backward": ("saved_v", "saved_g"),
    "_softmax_backward_data": ("output",),
    "_log_softmax_backward_data": ("output",),
}
# Of the others, the first that there is.
USUAL = ("self", "self_or_result", "input", "input_sizes", "input_size")
LIKEWISE = (
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool2d", "avg_pool3d",
    "max_pool2d_with_indices", "max_pool3d_with_indices", "binary_cross_entropy", "huber_loss", "mse_loss", "smooth_l1_loss",
    "soft_margin_loss", "nll_loss", "nll_loss2d", "elu", "glu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_sigmoid",
    "softplus", "rrelu_with_noise", "diagonal", "select", "slice", "unfold", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d",
    "upsample_trilinear3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip


def _derivative(func: Any, *args: Any, **kwargs: Any) -> Any:
    names = [a.name for a in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    usual = next((name for name in USUAL if name in given), "")
    sources = OF.get(func._schema.name.partition("::")[2], (usual,))
    shapes = [_shape(given, name) for name in sources]
    found = infer(func, _at_hints(args), _at_hints(kwargs))
    several = isinstance(found, tuple | list)
    results = []
    for like, shape in zip(found if several else [found], shapes, strict=True):
        made = None if like is None else _like(like, shape)
        if like is not None and made is None:
            return None
        results.append(made)
    return tuple(results) if several else results[0]


def _shape(given: dict[str, Any], name: str) -> Sequence[Int]:
    if name == "channels":
        return given["input"].shape[1:2]
    value = given[name]
    return value.shape if isinstance(value, torch.Tensor) else value or ()


def _at_hints(value: Any) -> Any:
    if isinstance(value, SizedMeta):
        shape, strides = ([*map(hint_of, n)] for n in (value.shape, value.stride()))
        return empty_strided(shape, strides, value.dtype)
    if isinstance(value, list | tuple):
        return type(value)(map(_at_hints, value))
    if isinstance(value, dict):
        return {name: _at_hints(v) for name, v in value.items()}
    return hint_of(value)


def _like(example: torch.Tensor, shape: Sequence[Int]) -> torch.Tensor | None:
    """A tensor of this shape that lies as the example does."""
    if tuple(example.shape) != tuple(map(hint_of, shape)):
        return None
    strides = example.stride()
    order = sorted(range(len(shape)), key=lambda d: (strides[d], example.shape[d], -d))
    dense = dense_strides(shape, order)
    if strides != tuple(map(hint_of, dense)):
        return None
    return empty_strided(shape, dense, example.dtype)


for _name in (*OF, *(f"{name}_backward" for name in LIKEWISE)):
    if (_packet := getattr(aten, _name, None)) is not None:
        sized_rule(_packet.default)(_derivative)


@sized_rule(aten.embedding_dense_backward.default)
def _embedding(func: Any, grad: Any, indices: Any, count: Int, *rest: Any) -> Any:
    return empty_strided([count, grad.shape[-1]], [grad.shape[-1], 1], grad.dtype)
