"""Corrects the results of ops whose meta kernel differs from the kernel of a device, because it does not know
the device.

A function gets the meta result and the op's arguments (Fakes), and returns the result as the device computes
it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._prims_common

from frameloom.capture.shapes.convolution_layouts import (
    convolution,
    convolution_backward,
    in_memory_format,
)
from frameloom.capture.shapes.dynamic_rules import as_suggested, folds_keep_order, fresh
from frameloom.capture.shapes.index_rules import index_result
from frameloom.capture.shapes.refused_dtypes import UPSAMPLING
from frameloom.capture.shapes.registry import (
    PRESERVING,
    RULES,
    as_known,
    dense_like,
    empty,
    is_pointwise,
    iterator_strides,
    operands_share_shape,
    pointwise,
    pointwise_dtype,
)
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.sized import (
    SizedMeta,
    dense_strides,
    empty_strided,
    has_channels_last_strides,
    has_sizes,
    specialized,
)
from frameloom.ir.symbolic.expr import hint_of

aten = torch.ops.aten
ASKED = 1 << 16  # maximum elements of tensors for which the library op is run


def _attention(meta: Any, query: Any, *others: Any, **options: Any) -> Any:
    """The result has the dimension order of the query: the flash kernels do so. Others order it by positions
    first, which is the order of a transformer's query, too."""
    order = sorted(range(query.dim()), key=lambda d: (-hint_of(query.stride(d)), d))
    for a, b in itertools.pairwise(order):
        # For symbolic sizes this becomes a guard.
        if not query.stride(a) >= query.stride(b):
            return specialized(meta)
    return empty_strided(meta.shape, dense_strides(meta.shape, order[::-1]), meta.dtype)


def _layer_norm(meta: Any, *args: Any) -> Any:
    """Statistics keep the dtype in which they are computed."""
    out, *statistics = meta
    return out, *(s.float() if s.dtype in HALVES else s for s in statistics)


def _by_columns(meta: torch.Tensor) -> torch.Tensor:
    """Returns matrices in column-major order, as LAPACK writes them."""
    rows, columns = meta.dim() - 2, meta.dim() - 1
    order = (rows, columns, *reversed(range(rows)))
    return empty_strided(meta.shape, dense_strides(meta.shape, order), meta.dtype)


def _svd(meta: Any, *args: Any, **options: Any) -> Any:
    u, s, vh = meta
    return u, s, vh if vh.dim() == 1 else _by_columns(vh)  # without vectors, all but s are empty


def _eig(meta: Any, x: Any) -> Any:
    values, vectors = meta
    return values, _by_columns(vectors)


def _log_sigmoid(meta: Any, x: Any) -> Any:
    """The result is a fresh tensor, and so is the tensor saved for the backward pass."""
    return tuple(empty(m.shape, m.dtype) for m in meta)


def _batch_norm(meta: Any, x: Any, *parameters: Any) -> Any:
    """Statistics of 16-bit inputs have the parameters' dtype; without parameters, the input's."""
    out, *statistics = meta
    if x.dtype not in HALVES:
        return meta
    given = [p.dtype for p in parameters[:4] if isinstance(p, torch.Tensor)]
    own = given[0] if given else x.dtype
    return out, *(s.to(own) if s.dtype.is_floating_point else s for s in statistics)


def _batch_norm_on_cpu(meta: Any, x: Any, *parameters: Any) -> Any:
    """Channels-last input gives a channels-last result; any other gives the strides of a fresh tensor."""
    out, *statistics = _batch_norm(meta, x, *parameters)
    last = not x.is_contiguous() and (_is_channels_last(x) or has_channels_last_strides(x))
    return fresh(out.shape, out.dtype, last), *statistics


def _batch_norm_backward_on_cpu(meta: Any, grad: Any, x: Any, *parameters: Any) -> Any:
    out, *others = meta
    if out is not None:
        last = has_channels_last_strides(x) or (not x.is_contiguous() and _is_channels_last(x))
        out = fresh(out.shape, out.dtype, last)
    return out, *others


def _is_channels_last(x: Any) -> bool:
    """Whether `x` is contiguous in that format; its strides may suggest another format if sizes are 1."""
    forms = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.dim() in forms and x.is_contiguous(memory_format=forms[x.dim()])


def _layer_norm_on_cpu(meta: Any, x: Any, shape: Any, *parameters: Any) -> Any:
    return _batch_norm(meta, x, *parameters[:2])


def _group_norm_on_cpu(meta: Any, x: Any, *parameters: Any) -> Any:
    return _batch_norm(_first_as_input(meta, x), x, *parameters[:2])


def _group_norm_backward_on_cpu(meta: Any, grad: Any, x: Any, *rest: Any) -> Any:
    """Gradients have the dtypes of the tensors that they are gradients of, for any dtype of the
    statistics."""
    out, *others = meta
    own = x.dtype if rest[2] is None else rest[2].dtype
    return out if out is None else out.to(x.dtype), *(g if g is None else g.to(own) for g in others)


def _contiguous(meta: Any, *args: Any) -> Any:
    if isinstance(meta, tuple):
        return tuple(m if m is None else empty(m.shape, m.dtype) for m in meta)
    return empty(meta.shape, meta.dtype)


def _as_second(meta: Any, grad: Any, x: Any, *args: Any) -> Any:
    return _as_input(meta, x)


def _angle(meta: Any, x: Any) -> Any:
    return _contiguous(meta) if x.is_complex() else meta


def _vector_norm(
    meta: Any, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, **options: Any
) -> Any:
    """Uses the shape and strides of a sum. Meta tensors use the one-element case for every reduction of
    dimensions of size 1. This gives other strides and, for one complex number in 2.11, other dimensions."""
    summed = x.meta.sum(dim, keepdim)
    return empty_strided(summed.shape, summed.stride(), meta.dtype)


def _filled_copy(meta: Any, x: Any, *args: Any) -> Any:
    return dense_like(x.meta)


def _nonzero_static(meta: Any, x: Any, **options: Any) -> Any:
    return meta.new_empty(meta.shape)


def _pixel_unshuffle(meta: Any, x: Any, factor: int) -> Any:
    """A result without elements is a copy."""
    return meta if x.numel() else x.meta.clone()


def _multi_margin_loss(meta: Any, x: Any, target: Any, *args: Any) -> Any:
    """One loss per class of `target`, which may be a number."""
    return meta if target.dim() else meta.new_empty(())


def _channel_shuffle(meta: Any, x: Any, groups: int) -> Any:
    return torch.empty(
        meta.shape, dtype=meta.dtype, device="meta",
        memory_format=torch._prims_common.suggest_memory_format(x),
    )  # fmt: skip


def _as_input(meta: Any, x: Any, *args: Any) -> Any:
    """The result has the memory format of the input; without elements, that of a fresh tensor."""
    if has_sizes(meta.shape):
        return as_suggested(x.meta, list(meta.shape), meta.dtype)
    memory_format = torch._prims_common.suggest_memory_format(x)
    return in_memory_format(meta, memory_format if x.numel() else torch.contiguous_format)


def _first_as_input(meta: Any, x: Any, *args: Any) -> Any:
    out, *others = meta
    return _as_input(out, x), *others


def _interpolated(meta: Any, x: Any, *args: Any) -> Any:
    """The result has the memory format of the input, also if sizes of 1 make the strides ambiguous."""
    if isinstance(meta, SizedMeta):  # shapes/image_rules.py has inferred it
        return meta
    memory_format = torch._prims_common.suggest_memory_format(x)
    return torch.empty(meta.shape, dtype=meta.dtype, device="meta", memory_format=memory_format)


def _embedding_bag(
    meta: Any, weight: Any, indices: Any, offsets: Any, scale_grad: bool = False, mode: int = 0, sparse: bool = False,
    factors: Any = None, *rest: Any,
) -> Any:  # fmt: skip
    """Sizes of the tensors that are saved for the backward pass. Source: `make_offset2bag_out` and
    `make_max_indices_out` of ATen's EmbeddingBag."""
    out, bag_of, sizes, largest = meta
    bags, padding = out.shape[0], rest[1] if len(rest) > 1 else -1
    quick = (
        weight.dtype in (torch.float32, *HALVES) and weight.stride(1) == 1 and padding < 0
        and (factors is None or factors.stride(0) == 1)
    )  # fmt: skip
    count = 0 if mode == 0 and quick else indices.shape[0]
    if mode != 2:
        largest = empty([bags], largest.dtype)
    return out, empty([count], bag_of.dtype), empty([bags], sizes.dtype), largest


def _fourier(func: Any) -> Callable[..., Any]:
    """Runs the library op on zeros: the order in which it handles the dimensions depends on the library that
    PyTorch was built with."""

    def layout(meta: Any, x: Any, *args: Any, **options: Any) -> Any:
        zeros = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cpu").zero_()
        return func(zeros, *args, **options).to("meta")

    return layout


def _index(meta: Any, x: Any, indices: Any) -> Any:
    if sum(t is not None for t in indices) < 2:
        return meta
    chosen = [t if t is None else specialized(t.meta) for t in indices]
    return index_result(specialized(x.meta), chosen, same_strides=True)


def _fold(meta: Any, *args: Any, **options: Any) -> Any:
    """A result without elements is a fresh tensor; meta kernels give a kept dimension a stride of 0."""
    if isinstance(meta, tuple):
        return tuple(map(_fold, meta))
    if has_sizes(meta.shape) or meta.numel() or folds_keep_order():
        return meta
    return empty(meta.shape, meta.dtype)


def _dropout(meta: Any, x: Any, p: float, train: bool | None) -> Any:
    """The result is a product with the mask; without training, a copy."""
    mask, shape = dense_like(x.meta, torch.bool), tuple(x.shape)
    if train is False:
        return dense_like(x.meta), mask
    return empty_strided(shape, iterator_strides(shape, [x.meta, mask], True), x.dtype), mask


def _dropout_on_gpu(meta: Any, x: Any, *args: Any) -> Any:
    return dense_like(x.meta), dense_like(x.meta, torch.bool)


LOSSES = (aten.mse_loss.default, aten.smooth_l1_loss.default)


def on_device(device: torch.device, func: Any, meta: Any, args: Any, kwargs: Any) -> Any:
    """Returns the result of an op on Fakes as the device computes it."""
    if (layout := LAYOUTS.get((device.type, func))) is not None:
        return as_known(layout(meta, *args, **kwargs))
    return as_converted(func, meta, args, kwargs) if device.type == "cpu" else meta


def as_converted(func: Any, meta: Any, args: Any, kwargs: Any) -> Any:
    """The CPU's kernels first convert operands of other dtypes, which makes them dense. Their strides are
    then those that decide the layout of the result."""
    operands = [a for a in (*args, *kwargs.values()) if isinstance(a, Fake)]
    if not operands or not isinstance(meta, torch.Tensor):
        return meta
    dtype = meta.dtype
    if dtype is torch.bool:
        dtype = _compared_as(args)
    others = [a.dtype for a in operands if a.dtype is not dtype and a.dim()]
    if not others or any(torch.promote_types(d, dtype) is not dtype for d in others):
        return meta
    iterates = is_pointwise(func) and func not in RULES and func not in PRESERVING
    if func is aten.pow.Scalar or not (iterates or (func in LOSSES and meta.dim())):
        return meta
    converted = [a.meta if a.dtype is dtype else dense_like(a.meta) for a in operands]
    shape = tuple(meta.shape)
    strides = iterator_strides(shape, converted, operands_share_shape(func, args, shape, operands))
    return empty_strided(shape, strides, meta.dtype)


def _compared_as(args: Sequence[Any]) -> torch.dtype:
    """Returns the dtype in which tensors and numbers are compared."""
    dtypes = [a.dtype for a in args if isinstance(a, Fake)]
    dtype = functools.reduce(torch.promote_types, dtypes)
    if any(isinstance(a, float) for a in args) and not (
        dtype.is_floating_point or dtype.is_complex
    ):
        return torch.get_default_dtype()
    return dtype


def _ldexp(meta: Any, x: Any, exponent: Any) -> Any:
    """Some pairs of dtypes have a kernel; else the power of two is a fresh tensor of its own. For small
    tensors the library op is run."""
    if not has_sizes(meta.shape) and meta.numel() <= ASKED:
        given = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu").zero_()
            for t in (x, exponent)
        ]
        return empty_strided(meta.shape, torch.ldexp(*given).stride(), meta.dtype)
    power = Fake(
        empty(exponent.shape, pointwise_dtype(aten.pow.Scalar, (2.0, exponent.meta), {})),
        meta.device,
    )
    product = pointwise(aten.mul.Tensor, x.meta, power.meta)
    converted = as_converted(aten.mul.Tensor, product, (x, power), {})
    # 16-bit floats do not become wider ones.
    return empty_strided(meta.shape, converted.stride(), meta.dtype)


HALVES = (torch.float16, torch.bfloat16)
LAYOUTS: dict[tuple[str, Any], Callable[..., Any]] = {
    ("cpu", aten.ldexp.Tensor): _ldexp,
    ("cuda", aten.ldexp.Tensor): _ldexp,
    ("cpu", aten.convolution.default): convolution,
    **{
        (device, aten.convolution_backward.default): convolution_backward
        for device in ("cpu", "cuda")
    },
    ("cpu", aten._linalg_svd.default): _svd,
    ("cpu", aten.linalg_eig.default): _eig,
    ("cpu", aten.max_unpool2d.default): _as_input,
    ("cpu", aten.log_sigmoid_forward.default): _log_sigmoid,
    ("cpu", aten._native_batch_norm_legit.no_stats): _batch_norm_on_cpu,
    ("cpu", aten._native_batch_norm_legit_no_training.default): _batch_norm_on_cpu,
    ("cpu", aten._native_batch_norm_legit_functional.default): _batch_norm_on_cpu,
    ("cpu", aten._batch_norm_with_update_functional.default): _batch_norm_on_cpu,
    ("cpu", aten.native_layer_norm.default): _layer_norm_on_cpu,
    ("cpu", aten.native_group_norm.default): _group_norm_on_cpu,
    ("cpu", aten.native_group_norm_backward.default): _group_norm_backward_on_cpu,
    ("cpu", aten.native_dropout.default): _dropout,
    **{
        ("cpu", func): _fold
        for func in (
            aten.sum.dim_IntList,
            aten.prod.dim_int,
            aten.amax.default,
            aten.amin.default,
            aten.var.correction,
            aten.std.correction,
            aten.var_mean.correction,
            aten.std_mean.correction,
            aten.aminmax.default,
        )
    },
    ("cpu", aten.native_batch_norm_backward.default): _batch_norm_backward_on_cpu,
    **{
        (device, func): _contiguous
        for func in (
            aten.native_layer_norm_backward.default,
            aten.glu_backward.default,
            aten.nll_loss2d_forward.default,
            aten.nll_loss2d_backward.default,
        )
        for device in ("cpu", "cuda")
    },
    **{
        (device, func): _filled_copy
        for func in (aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
        for device in ("cpu", "cuda")
    },
    **{(device, aten.renorm.default): _contiguous for device in ("cpu", "cuda")},
    **{(device, aten.linalg_vector_norm.default): _vector_norm for device in ("cpu", "cuda")},
    ("cpu", aten.angle.default): _angle,
    ("cpu", aten.nonzero_static.default): _nonzero_static,
    ("cpu", aten.multi_margin_loss.default): _multi_margin_loss,
    ("cpu", aten._embedding_bag.default): _embedding_bag,
    ("cpu", aten.channel_shuffle.default): _channel_shuffle,
    ("cpu", aten.pixel_unshuffle.default): _pixel_unshuffle,
    ("cpu", aten.pixel_shuffle.default): _as_input,
    **{
        ("cpu", getattr(aten, f"{mode}_pad{n}d").default): _as_input
        for mode in ("reflection", "replication")
        for n in (2, 3)
    },
    **{
        ("cpu", getattr(aten, f"{mode}_pad{n}d_backward").default): _as_second
        for mode in ("reflection", "replication")
        for n in (2, 3)
    },
    **{
        ("cpu", func): _fourier(func)
        for func in (aten._fft_c2c.default, aten._fft_r2c.default, aten._fft_c2r.default)
    },
    **{
        (device, getattr(aten, name).default): _interpolated
        for name in UPSAMPLING
        for device in ("cpu", "cuda")
    },
    ("cuda", aten.convolution.default): convolution,
    ("cuda", aten.index.Tensor): _index,
    ("cuda", aten.roll.default): _contiguous,
    ("cuda", aten.native_layer_norm.default): _layer_norm,
    ("cuda", aten.native_dropout.default): _dropout_on_gpu,
    ("cuda", aten._fused_rms_norm.default): _contiguous,
    ("cuda", aten._fused_rms_norm_backward.default): _contiguous,
    ("cuda", aten.scaled_dot_product_attention.default): _attention,
}
