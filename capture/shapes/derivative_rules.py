"""Rules for the results of derivatives (`aten.*_backward`), mostly for symbolic sizes.

A gradient has the shape of the tensor that it is a gradient of, which is an argument; for its layout see
shapes/hint_layouts.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.registry import (
    dense_like,
    empty,
    iterated,
    rule,
    same_sizes,
    sized_rule,
)
from frameloom.capture.tensors.sized import empty_strided, has_sizes
from frameloom.ir.symbolic.expr import Int

aten = torch.ops.aten
# The arguments that the results are gradients of: tensors or their shapes.
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
# For the others, the first of these arguments that the op has.
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
    given = _given(func, args, kwargs)
    usual = next((name for name in USUAL if name in given), "")
    sources = OF.get(func._schema.name.partition("::")[2], (usual,))
    return with_hint_layout(func, args, kwargs, [_shape(given, name) for name in sources])


def _shape(given: dict[str, Any], name: str) -> Sequence[Int]:
    if name == "channels":
        return given["input"].shape[1:2]
    value = given[name]
    return value.shape if isinstance(value, torch.Tensor) else value or ()


for _name in (*OF, *(f"{name}_backward" for name in LIKEWISE)):
    if (_packet := getattr(aten, _name, None)) is not None:
        sized_rule(_packet.default)(_derivative)


@sized_rule(aten.embedding_dense_backward.default)
def _embedding(func: Any, grad: Any, indices: Any, count: Int, *rest: Any) -> Any:
    return empty_strided([count, grad.shape[-1]], [grad.shape[-1], 1], grad.dtype)


# Derivatives whose kernels iterate over these arguments, in this order; PyTorch's own meta functions use
# formulas.
ITERATING = {
    "elu_backward": ("grad_output", "self_or_result"),
    "hardsigmoid_backward": ("grad_output", "self"),
    "hardswish_backward": ("grad_output", "self"),
    "hardtanh_backward": ("grad_output", "self"),
    "leaky_relu_backward": ("self", "grad_output"),
    "softplus_backward": ("grad_output", "self"),
    "threshold_backward": ("self", "grad_output"),
}
# Derivatives whose result has the layout of one argument, or is fresh.
MADE_LIKE = {
    "binary_cross_entropy_backward": "self",
    "log_sigmoid_backward": "grad_output",
    "soft_margin_loss_backward": "target",
    "huber_loss_backward": None,
    "mse_loss_backward": None,
    "smooth_l1_loss_backward": None,
}


def _given(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    return {**dict(zip((a.name for a in func._schema.arguments), args, strict=False)), **kwargs}


def _iterating(func: Any, *args: Any, **kwargs: Any) -> Any:
    given = _given(func, args, kwargs)
    name = func._schema.name.partition("::")[2]
    operands = [given[k] for k in ITERATING[name]]
    return iterated(operands, given["grad_output"].dtype)


def _made_like(func: Any, *args: Any, **kwargs: Any) -> Any:
    given = _given(func, args, kwargs)
    source, x = MADE_LIKE[func._schema.name.partition("::")[2]], given["self"]
    if source is None:
        return empty(x.shape, x.dtype)
    like = given[source]
    return dense_like(like, x.dtype) if same_sizes(like.shape, x.shape) else None


@rule(aten.rrelu_with_noise_backward.default)
def _rrelu(
    func: Any, grad: Any, x: Any, noise: Any, lower: Any, upper: Any, training: bool, *rest: Any
) -> Any:
    if has_sizes(x.shape):
        return None
    return iterated([noise, grad] if training and upper - lower > 1e-6 else [x, grad], x.dtype)


for _names, _function in ((ITERATING, _iterating), (MADE_LIKE, _made_like)):
    for _name in _names:
        rule(getattr(aten, _name).default)(_function)
