"""Ops and functions that have recording rules of their own.

SPECIAL: rules for ATen ops. WHOLE: functions that PyTorch decomposes before ops are recorded, but that are
one library call here; WHOLE_ON_GPU: those that are one library call on GPUs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from frameloom.capture.recording.data_dependent import QUANTILES, record_quantile
from frameloom.capture.recording.masked_writes import (
    record_gradient_of_index,
    record_index_put,
    record_masked_scatter,
    record_setitem,
)
from frameloom.capture.recording.recurrent import record_rnn
from frameloom.capture.recording.writes import conform
from frameloom.capture.symbolic.sized_calls import SIZED_CALLS
from frameloom.capture.tensors.constant_folding import known_mask
from frameloom.capture.tensors.functionalize import reaches_beyond, write
from frameloom.capture.tensors.zero_tensors import ZEROS, record_zeros
from frameloom.errors import Break
from frameloom.ir.philox import Source
from frameloom.ir.strides import overlaps
from frameloom.ir.symbolic.compare import equal
from frameloom.ir.symbolic.expr import Size

aten = torch.ops.aten


def _record_batch_norm(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Records `native_batch_norm`, which writes its running statistics although its schema and autograd do
    not show it."""
    x, weight, bias, mean, var, training, momentum, eps = args
    dtypes = {t.dtype for t in (weight, bias, mean, var) if t is not None}
    wanted = ({x.dtype}, {torch.float32}) if x.dtype.itemsize == 2 else ({x.dtype},)
    if dtypes and dtypes not in wanted and (x.device.type == "cpu" or len(dtypes) > 1):
        raise Break("op_error", f"{func}: parameters of other dtypes")  # kernels refuse them
    if not (training or x.is_floating_point()):
        raise Break("op_error", f"{func} of {x.dtype}")
    if not training:
        given = (x, weight, bias, mean, var, momentum, eps)
        return recorder.pure(aten._native_batch_norm_legit_no_training.default, given, {})
    if mean is None:
        return recorder.pure(
            aten._native_batch_norm_legit.no_stats, (x, weight, bias, True, momentum, eps), {}
        )
    out, save_mean, save_invstd, new_mean, new_var = recorder.pure(
        aten._native_batch_norm_legit_functional.default, args, {}
    )
    for target, value in ((mean, new_mean), (var, new_var)):
        write(target, conform(recorder, value, target, func), recorder, counted=False)
    return out, save_mean, save_invstd


def _record_cudnn_batch_norm(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Records cuDNN's batch norm as the plain one: fused with its neighbours in one kernel, it moves fewer
    bytes. Its fourth result is cuDNN's own memory for its own backward."""
    out, mean, invstd = _record_batch_norm(recorder, func, args, kwargs)
    empty = recorder.pure(
        aten.empty.memory_format, ([0],), {"dtype": torch.uint8, "device": out.device}
    )
    return out, mean, invstd, empty


def _record_batch_norm_backward(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Ignores the running statistics in training, because the forward graph has changed them."""
    grad, x, weight, mean, var, save_mean, save_invstd, training, eps, mask = args
    if training:
        mean = var = None
    given = (grad, x, weight, mean, var, save_mean, save_invstd, training, eps, mask)
    return recorder.pure(aten.native_batch_norm_backward.default, given, {})


def _record_cudnn_batch_norm_backward(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    x, grad, weight, _, _, save_mean, save_invstd, eps, _ = args
    mask = [True, True, True]
    given = (grad, x, weight, None, None, save_mean, save_invstd, True, eps, mask)
    return recorder.pure(aten.native_batch_norm_backward.default, given, {})


def _record_as_strided_scatter(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Its offset counts from the start of the memory, wherever the tensor starts. Our loops count from the
    start of the tensor, and do not support complex numbers."""
    x, _, size, stride, *_ = args
    beyond = reaches_beyond(x, *args[2:], **kwargs)
    whole = x.is_contiguous() and not x.storage_offset() and not x.dtype.is_complex
    if beyond or not whole or overlaps(size, stride):
        raise Break("unsupported_op", f"{func} on memory that is not one contiguous tensor")
    return recorder.pure(func, args, kwargs)


EMPTY = (
    aten.empty.memory_format, aten.empty_like.default, aten.empty_strided.default,
    aten.empty_permuted.default, aten.new_empty.default, aten.new_empty_strided.default,
)  # fmt: skip


def _record_empty(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Fills the result where deterministic algorithms are on: PyTorch then fills uninitialized memory."""
    made = recorder.pure(func, args, kwargs)
    for tells in (
        torch._C._get_deterministic_algorithms,
        torch._C._get_deterministic_fill_uninitialized_memory,
    ):
        recorder.current_call.relies_on[tells] = None
        if not tells():
            return made
    dtype = made.dtype
    value: Any = torch.nan
    if not (dtype.is_floating_point or dtype.is_complex):
        value = True if dtype is torch.bool else torch.iinfo(dtype).max
    return recorder.pure(aten.fill.Scalar, (made, value), {})


def _record_assertion(recorder: Any, func: Any, args: Any, kwargs: Any) -> None:
    recorder.emit(func, args, kwargs)
    recorder.n_ops += 1


def _record_fake_quantize(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Records a check of integer zero points, as the kernel does: whether those of channels are in the range
    depends on the data."""
    x, _, zero_point, _, low, high = args
    if not zero_point.is_floating_point():
        if x.device.type != "cpu":
            raise Break("op_error", f"{func}, which looks at the zero points")
        nearest = recorder.pure(aten.clamp.default, (zero_point, low, high), {})
        inside = recorder.pure(aten.eq.Tensor, (nearest, zero_point), {})
        text = "`zero_point` must be between `quant_min` and `quant_max`."
        fits = recorder.pure(aten.all.default, (inside,), {})
        _record_assertion(recorder, aten._assert_async.msg, (fits, text), {})
    return recorder.pure(func, args, kwargs)


def _record_dropout(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Notes the layout of the input, because it decides which random numbers the kernel draws."""
    x = args[0]
    if not x.numel():
        raise Break("unsupported_op", f"{func} of nothing, which is the tensor itself")
    results = recorder.pure(func, args, kwargs)
    number = x.memory.input
    name = None if number is None else f"input_{number}"
    node = results[0].node.args[0]
    node.meta["source"] = Source(tuple(x.stride()), x.storage_offset(), name)
    return results


# They need no vectors, but PyTorch computes vectors for any subclass of tensors, and Fakes are one.
ONLY_VALUES = frozenset({
    torch.linalg.svdvals, torch.linalg.norm, torch.linalg.matrix_norm, torch.linalg.cond, torch.linalg.matrix_rank, torch.norm,
    torch.functional.norm, torch.Tensor.norm, torch.nuclear_norm, torch.linalg.eigvalsh,
})  # fmt: skip


# Their derivatives check that the requested gradient is defined, but not for Fakes.
CHECKED = frozenset({aten.linalg_eig.default, aten._linalg_eigh.default, aten._linalg_svd.default})


def is_checked(node: torch.fx.Node) -> bool:
    """Whether the gradient of the op may raise depending on data."""
    if node.target is aten.linalg_eig.default:
        return True
    given = node.args[0] if node.target in CHECKED else None
    return isinstance(given, torch.fx.Node) and given.meta["val"].is_complex()


def _record_values(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Records singular values and eigenvalues; the third argument says whether vectors are computed."""
    is_followed = torch.is_grad_enabled() and args[0].requires_grad
    if recorder.current_call.function in ONLY_VALUES and not is_followed:
        second = func._schema.arguments[1].default_value
        args = (*(*args, second)[:2], False)
    return recorder.pure(func, args, kwargs)


QUANTIZING = (
    aten.quantize_per_tensor, aten.quantize_per_tensor_dynamic, aten.quantize_per_channel,
    aten._empty_affine_quantized, aten._make_per_tensor_quantized_tensor,
    aten._make_per_channel_quantized_tensor,
)  # fmt: skip


def _quantized(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Breaks, because PyTorch's shape functions treat the quantized result as a plain tensor."""
    raise Break("unsupported_tensor", f"{func} makes a quantized tensor")


POOLS_OF_ROWS = frozenset({F.max_pool1d, torch.max_pool1d, F._max_pool1d})  # type: ignore[attr-defined]


def pools_as_image(x: torch.Tensor, args: Any, kwargs: Any, is_followed: bool) -> bool:
    """Whether a function of `POOLS_OF_ROWS` decomposes into the recorded ops, instead of using its own
    kernel, which exists only for the CPU."""
    wants_indices = kwargs.get("return_indices", args[6] if len(args) > 6 else False)
    return is_followed or bool(wants_indices) or x.device.type != "cpu"


def _record_max_pool(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Handles windows of one row, to which `max_pool1d` also decomposes; on the CPU that has a kernel of its
    own, which refuses integers."""
    x, kernel, *_ = args
    if kernel[0] == 1 and x.device.type == "cpu" and not x.dtype.is_floating_point:
        raise Break("op_error", f"{func}: one-dimensional, of integers")
    call = recorder.current_call
    if call.function in POOLS_OF_ROWS and not call.decomposes_as_eager:
        if any(type(n) is int and n == 0 for n in x.shape[1:]):
            raise Break("op_error", f"{func}: one-dimensional, of nothing")
        # That kernel's result is a fresh tensor, whatever the layout of the operand.
        x = recorder.pure(aten.clone.default, (x,), {"memory_format": torch.contiguous_format})
        args = (x, *args[1:])
    return recorder.pure(func, args, kwargs)


OF_PRODUCTS = (
    aten.linalg_pinv.atol_rtol_tensor, aten._trilinear.default, aten._cdist_forward.default,
    aten._euclidean_dist.default, aten.affine_grid_generator.default,
    aten._transformer_encoder_layer_fwd.default, aten._native_multi_head_attention.default,
)  # fmt: skip


def _record_products(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Breaks under autocast: the kernels call ops that autocast changes, and the shape functions do not know
    that. Graphs run in the caller's autocast setting, not in that of a region of the program, nor in that
    inside an op whose operands autocast casts."""
    if args[0].device.type in (*recorder.current_call.autocast, *recorder.modes.around):
        raise Break("unsupported_op", f"{func} under autocast")
    return recorder.pure(func, args, kwargs)


def _record_joined(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Breaks where the kernel would raise: it calls `cat`, which under autocast refuses operands of another
    16-bit type."""
    first = args[0] if isinstance(args[0], torch.Tensor) else args[0][0]
    halves = {torch.float16, torch.bfloat16} - {torch.get_autocast_dtype(first.device.type)}
    if first.device.type in recorder.current_call.autocast and first.dtype in halves:
        raise Break("op_error", f"{func} of {first.dtype} under autocast")
    return recorder.pure(func, args, kwargs)


def _record_channel_shuffle(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    if not args[0].numel():
        raise Break("unsupported_op", f"{func} of nothing, which is the tensor itself")
    return recorder.pure(func, args, kwargs)


def _record_clamp(recorder: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Breaks where the derivative would raise. It combines masks in place for plain tensors, but not for
    subclasses such as Fakes; in place, it raises where two of the tensors together are smaller than the
    result."""
    result = recorder.pure(func, args, kwargs)
    low, high = (*args[1:], *kwargs.values(), None)[:2]
    bounds = [t for t in (low, high) if t is not None]
    if recorder.current_call.is_followed and len(bounds) == 2:
        pairs = [(args[0], low)] if args[0].requires_grad else []
        if any(t.requires_grad for t in bounds):
            pairs += [(args[0], low), (args[0], high), (low, high)]
        for pair in pairs:
            together = tuple(torch.broadcast_shapes(*(t.shape for t in pair)))
            if len(together) != result.dim() or not all(map(equal, together, result.shape)):
                raise Break("gradient", f"{func} of two tensors that are smaller than the result")
    return result


SPECIAL: dict[Any, Callable[..., Any]] = {
    aten.mkldnn_rnn_layer.default: record_rnn,
    **dict.fromkeys(EMPTY, _record_empty),
    **{getattr(of, overload): _quantized for of in QUANTIZING for overload in of.overloads()},
    ZEROS: record_zeros,
    aten.native_batch_norm.default: _record_batch_norm,
    aten.cudnn_batch_norm.default: _record_cudnn_batch_norm,
    aten.native_batch_norm_backward.default: _record_batch_norm_backward,
    aten.cudnn_batch_norm_backward.default: _record_cudnn_batch_norm_backward,
    aten.as_strided_scatter.default: _record_as_strided_scatter,
    aten.max_pool2d_with_indices.default: _record_max_pool,
    aten.clamp.Tensor: _record_clamp,
    aten.fake_quantize_per_channel_affine_cachemask.default: _record_fake_quantize,
    aten.channel_shuffle.default: _record_channel_shuffle,
    **dict.fromkeys(OF_PRODUCTS, _record_products),
    **dict.fromkeys(
        (aten.roll.default, aten.isin.Tensor_Tensor, aten._chunk_cat.default), _record_joined
    ),
    aten.index_put.default: record_gradient_of_index,
    aten._assert_async.msg: _record_assertion,
    aten.native_dropout.default: _record_dropout,
    aten._linalg_check_errors.default: _record_assertion,
    aten._linalg_svd.default: _record_values,
    aten._linalg_eigh.default: _record_values,
}


def _record_attention(
    recorder: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Records attention as one op, for which PyTorch chooses a kernel at run time by dtype, sizes and chip.
    Autograd needs to know the exact kernel; PyTorch's function then chooses it here."""
    options = {"scale": scale, "enable_gqa": enable_gqa}
    if dropout_p > 0 or recorder.current_call.is_followed:
        if isinstance(attn_mask, torch.Tensor) and not is_causal:
            attn_mask, is_causal = simplified_mask(recorder, query, key, attn_mask)
        given = (query, key, value, attn_mask, dropout_p, is_causal)
        return recorder.run(F.scaled_dot_product_attention, given, options)
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value, attn_mask = (
            recorder.run(torch.Tensor.to, (t, dtype), {})
            if t is not None and t.is_floating_point() and t.dtype != torch.float64
            else t
            for t in (query, key, value, attn_mask)
        )
    given = (query, key, value, attn_mask, 0.0, is_causal)
    return recorder.pure(aten.scaled_dot_product_attention.default, given, options)


def simplified_mask(recorder: Any, query: Any, key: Any, mask: Any) -> tuple[Any, bool]:
    """Returns (mask, is_causal) by constant folding of the mask. The mask is dropped where it hides nothing,
    or exactly the later keys of each query; the fast kernels take no mask."""
    known = known_mask(mask, recorder)
    queries, keys = query.shape[-2], key.shape[-2]
    if known is None:
        return mask, False
    if bool(known.all()):
        return None, False
    if queries == keys and known.shape[-2:] == (queries, keys):
        lower = torch.ones(queries, keys, dtype=torch.bool).tril()
        if bool((known == lower).all()):
            return None, True
    return mask, False


def _record_ctc_loss(
    recorder: Any,
    x: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Records the public function, because the inner op keeps a tensor of data-dependent size for
    gradients."""
    if isinstance(reduction, str):
        reduction = torch.nn._reduction.get_enum(reduction)
    lengths = (input_lengths, target_lengths)
    func = aten.ctc_loss.Tensor
    if not any(isinstance(length, torch.Tensor) for length in lengths):
        func, lengths = aten.ctc_loss.IntList, (list(input_lengths), list(target_lengths))
    if x.requires_grad:
        raise Break("data_dependent", str(func))
    return recorder.pure(func, (x, targets, *lengths, blank, reduction, zero_infinity), {})


def _record_cosine_similarity(
    recorder: Any, x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8
) -> Any:
    # Complex numbers are refused.
    if not recorder.current_call.is_followed or torch.result_type(x1, x2).is_complex:
        return recorder.run(torch.cosine_similarity, (x1, x2, dim, eps), {})
    return recorder.run(_cosine_similarity, (x1, x2, dim, eps), {})


def _cosine_similarity(x1: torch.Tensor, x2: torch.Tensor, dim: int, eps: float) -> torch.Tensor:
    """Does what PyTorch does, except that autograd sees how norms are raised to `eps`: PyTorch hides that
    from autograd, so that gradients pass."""
    dtype = torch.result_type(x1, x2)
    given = [x if x.is_floating_point() else x.to(dtype) for x in (x1, x2)]
    directions = []
    for x in torch.broadcast_tensors(*given):
        norm = torch.linalg.vector_norm(x, 2, dim, True)
        directions.append(x / torch.where(norm < eps, norm - norm.detach() + eps, norm))
    return (directions[0] * directions[1]).sum(dim)


def _tell_strides(recorder: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Decides first whether the tensor has elements, because an empty tensor has other strides."""
    for n in x.shape:
        if isinstance(n, Size):
            bool(n > 0)
    return x.stride(*args, **kwargs)


INDEX_PUTS = (torch.index_put, torch.index_put_, torch.Tensor.index_put, torch.Tensor.index_put_)


def _record_one_hot(recorder: Any, index: Any, num_classes: Any = -1) -> Any:
    """Records `one_hot` as one op. For tensors without data, PyTorch compares with all classes; that checks
    nothing, and its result has another layout."""
    is_known = isinstance(num_classes, Size) or num_classes > 0
    if not is_known and num_classes != -1:
        raise Break("op_error", "one_hot without classes")
    if isinstance(num_classes, bool):
        raise Break("op_error", "one_hot of a bool")
    if not is_known or index.dtype != torch.int64:
        return recorder.run(F.one_hot, (index, num_classes), {})
    return recorder.pure(aten.one_hot.default, (index, num_classes), {})


WHOLE: dict[Any, Callable[..., Any]] = {
    F.one_hot: _record_one_hot,
    torch.Tensor.stride: _tell_strides,
    operator.setitem: record_setitem,
    **{fn: record_index_put(fn) for fn in INDEX_PUTS},
    **{fn: record_quantile(fn) for fn in QUANTILES},
    **SIZED_CALLS,
    torch.cosine_similarity: _record_cosine_similarity,
    torch.masked_scatter: record_masked_scatter,
    torch.Tensor.masked_scatter: record_masked_scatter,
    torch.ctc_loss: _record_ctc_loss,
    F.ctc_loss: _record_ctc_loss,
}
WHOLE_ON_GPU: dict[Any, Callable[..., Any]] = {F.scaled_dot_product_attention: _record_attention}
