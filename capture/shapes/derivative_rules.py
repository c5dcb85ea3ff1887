"""Rules for the results of derivatives (`aten.*_backward`), mostly for symbolic sizes.

A gradient has the shape of the tensor that it is a gradient of, which is an argument; for its layout see
shapes/hint_layouts.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.iteration import dense_like, empty, equal_sizes, iterated, same_sizes
from frameloom.capture.shapes.registry import FRESH, KEEPING, Rule, layout, rule, sized_rule
from frameloom.ir.symbolic.expr import Int

aten = torch.ops.aten
# If it is not stated, a gradient is one of the first of these arguments that the op has.
USUAL = ("self", "self_or_result", "input", "input_sizes", "input_size")
LIKE_USUAL = (
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool2d", "avg_pool3d",
    "max_pool2d_with_indices", "max_pool3d_with_indices", "nll_loss", "nll_loss2d", "glu", "diagonal", "select", "slice", "unfold",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)  # fmt: skip
KEEPING |= {
    aten.max_pool2d_with_indices_backward.default, aten.avg_pool2d_backward.default, aten._adaptive_avg_pool2d_backward.default,
    aten._softmax_backward_data.default, aten._log_softmax_backward_data.default, aten.nll_loss_backward.default,
}  # fmt: skip
FRESH |= {aten.embedding_dense_backward.default}


def _given(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    return {**dict(zip((a.name for a in func._schema.arguments), args, strict=False)), **kwargs}


def gradients_of(*sources: str) -> Rule:
    """Returns the rule of an op whose results are gradients of these arguments: tensors or their shapes."""

    def derivative(func: Any, *args: Any, **kwargs: Any) -> Any:
        given = _given(func, args, kwargs)
        names = sources or [next(name for name in USUAL if name in given)]
        return with_hint_layout(func, args, kwargs, [_shape(given, name) for name in names])

    return derivative


def _shape(given: dict[str, Any], name: str) -> Sequence[Int]:
    if name == "channels":
        return given["input"].shape[1:2]
    value = given[name]
    return value.shape if isinstance(value, torch.Tensor) else value or ()


for _name in LIKE_USUAL:
    sized_rule(getattr(aten, f"{_name}_backward").default)(gradients_of())
sized_rule(aten._prelu_kernel_backward.default)(gradients_of("self", "self"))
sized_rule(aten._weight_norm_interface_backward.default)(gradients_of("saved_v", "saved_g"))
sized_rule(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)(
    gradients_of("input", "grid")
)


@sized_rule(aten.embedding_dense_backward.default)
def _embedding(func: Any, grad: Any, indices: Any, count: Int, *rest: Any) -> Any:
    return empty([count, grad.shape[-1]], grad.dtype)


# PyTorch has no meta kernel for these.  Their kernels write to a contiguous tensor.
WITHOUT_META = (
    aten.multi_margin_loss_backward.default,
    aten.multilabel_margin_loss_backward.default,
    aten.fractional_max_pool3d_backward.default,
)
FRESH |= set(WITHOUT_META)


@rule(*WITHOUT_META)
def _without_meta(func: Any, grad: Any, x: Any, *rest: Any, **kwargs: Any) -> Any:
    return empty(x.shape, x.dtype)


@rule(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default)
def _softmax(func: Any, grad: Any, output: Any, dim: int, dtype: torch.dtype) -> Any:
    return empty(grad.shape, dtype) if equal_sizes(grad.shape, output.shape) else None


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


@rule(*(getattr(aten, name).default for name in ITERATING))
def _iterating(func: Any, *args: Any, **kwargs: Any) -> Any:
    given = _given(func, args, kwargs)
    operands = [given[k] for k in ITERATING[func._opname]]
    return iterated(operands, given["grad_output"].dtype)


@rule(*(getattr(aten, name).default for name in MADE_LIKE))
def _made_like(func: Any, *args: Any, **kwargs: Any) -> Any:
    given = _given(func, args, kwargs)
    source, x = MADE_LIKE[func._opname], given["self"]
    if source is None:
        return empty(x.shape, x.dtype)
    like = given[source]
    return dense_like(like, x.dtype) if same_sizes(like.shape, x.shape) else None


@rule(aten.rrelu_with_noise_backward.default)
def _rrelu(
    func: Any, grad: Any, x: Any, noise: Any, lower: Any, upper: Any, training: bool, *rest: Any
) -> Any:
    return iterated([noise, grad] if training and upper - lower > 1e-6 else [x, grad], x.dtype)


@layout(aten.glu_backward.default, aten.nll_loss2d_backward.default)
def _fresh(meta: Any, *args: Any) -> Any:
    return empty(meta.shape, meta.dtype)
