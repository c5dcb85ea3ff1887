"""Dtypes, sizes and indices that kernels refuse or warn about, but shape inference accepts. An op with such
arguments breaks the graph, so that the program's own call raises or warns."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from frameloom.errors import Break
from frameloom.ir.symbolic.compare import equal

aten = torch.ops.aten
UPSAMPLING = [
    *(f"{mode}{n}d" for n in (1, 2, 3) for mode in ("upsample_nearest", "_upsample_nearest_exact")),
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
]  # fmt: skip


def _of_ints(x: torch.Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def _of_halves(x: torch.Tensor) -> bool:
    return x.dtype in (torch.float16, torch.bfloat16)


@functools.lru_cache(None, typed=True)
def _kernel_refuses(func: Any, *args: Any) -> bool:
    """Whether the CPU's kernel refuses one number of each dtype. A tuple of a dtype means a list with one
    such tensor.

    Versions of PyTorch differ for bools, 16-bit floats and mixed dtypes.
    """

    def one(dtype: torch.dtype) -> torch.Tensor:
        return torch.ones(1, 1, dtype=dtype, device="cpu")

    given = [
        [one(*a)] if isinstance(a, tuple) else one(a) if isinstance(a, torch.dtype) else a
        for a in args
    ]
    try:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            func(*given)
    except (RuntimeError, NotImplementedError):
        return True
    return False


# Dtypes that only the kernels of GPUs refuse.
REFUSED_ON_GPU: dict[Any, Callable[[torch.Tensor], bool]] = {
    **{
        getattr(aten, name).default: _of_ints
        for name in (
            "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "convolution",
        )
    },
    **{
        getattr(aten, name).default: lambda x: not x.is_floating_point()
        for name in ("avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices")
    },
    **{
        func: _of_ints
        for packet in (aten.upsample_bilinear2d, aten.upsample_bicubic2d, aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa)
        for func in (packet.default, packet.vec)
    },
    **{
        func: _of_ints
        for packet in (
            aten.native_batch_norm, aten._native_batch_norm_legit, aten._native_batch_norm_legit_functional, aten.cudnn_batch_norm,
            aten._batch_norm_with_update, aten.native_dropout_backward,
        )
        for func in (getattr(packet, name) for name in packet.overloads())
    },
    **{getattr(aten, name).default: _of_halves for name in ("igamma", "igammac", "angle")},
}  # fmt: skip


# Dtypes of the first argument that kernels refuse but the meta kernel accepts.
REFUSED: dict[Any, Callable[[torch.Tensor], bool]] = {
    **{
        getattr(packet, name): _of_ints
        for packet in (aten.std, aten.var, aten.std_mean, aten.var_mean)
        for name in packet.overloads()
    },
    **{
        func: _of_ints
        for func in (
            aten.native_layer_norm.default,
            aten.native_group_norm.default,
            aten.log_sigmoid_forward.default,
            aten.binary_cross_entropy_with_logits.default,
            aten.logcumsumexp.default,
            aten.glu.default,
            aten.nll_loss_forward.default,
            aten.nll_loss2d_forward.default,
            aten._adaptive_avg_pool3d.default,
            aten._softmax.default,
            aten._log_softmax.default,
        )
    },
    # Ops with kernels for few dtypes.
    aten.multi_margin_loss.default: lambda x: x.dtype not in (torch.float32, torch.float64),
    aten.masked_select.default: lambda x: x.dtype in (torch.uint16, torch.uint32, torch.uint64),
    aten.equal.default: lambda x: x.is_floating_point() and x.itemsize == 1,
    aten.im2col.default: lambda x: (
        not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool)
    ),
    aten.trace.default: lambda x: (
        x.device.type == "cpu" and _kernel_refuses(aten.trace.default, x.dtype)
    ),
    **{
        getattr(aten, f"reflection_pad{n}d").default: lambda x: x.dtype is torch.bool
        for n in (1, 2, 3)
    },
}


# Ops that draw or count, and the dtypes that their results may have.
MADE: dict[Any, Callable[[torch.dtype], bool]] = {
    **{
        getattr(aten, name): lambda of: of.is_floating_point or of.is_complex
        for name in ("rand", "rand_like", "uniform_", "randn", "randn_like", "normal_")
    },
    **{
        getattr(aten, name): lambda of: of.is_floating_point
        for name in ("exponential_", "cauchy_", "log_normal_")
    },
    aten.geometric_: lambda of: not of.is_complex and of is not torch.bool,
    aten.rrelu_with_noise: lambda of: of.is_floating_point and of is not torch.float16,
    aten.rrelu_with_noise_: lambda of: of.is_floating_point and of is not torch.float16,
    aten._standard_gamma: lambda of: of in (torch.float32, torch.float64),
    **{
        getattr(aten, name): lambda of: not of.is_complex and of is not torch.bool
        for name in ("randint", "randint_like", "randperm")
    },
    aten.arange: lambda of: not of.is_complex and of is not torch.bool,
    **{getattr(aten, name): lambda of: not of.is_complex for name in ("random_", "bernoulli_")},
}


def _is_invalid_index_list(x: torch.Tensor, dim: Any, index: torch.Tensor, *rest: Any) -> bool:
    return index.dtype is not torch.int64 or index.dim() > 1


def _is_invalid_fill(x: torch.Tensor, dim: Any, index: torch.Tensor, value: Any) -> bool:
    has_dims = isinstance(value, torch.Tensor) and value.dim() > 0
    return has_dims or _is_invalid_index_list(x, dim, index)


def _is_invalid_index(
    x: torch.Tensor, dim: Any, index: torch.Tensor, *rest: Any, **options: Any
) -> bool:
    return index.dtype not in (torch.int64, torch.int32)


def _are_invalid_targets(x: torch.Tensor, target: torch.Tensor, *rest: Any) -> bool:
    return target.dtype is not torch.int64  # some take bytes, too


def _is_invalid_loss(x: torch.Tensor, target: torch.Tensor, weight: Any, *rest: Any) -> bool:
    return _are_invalid_targets(x, target) or (weight is not None and weight.dtype is not x.dtype)


def _is_invalid_side(
    boundaries: torch.Tensor, x: Any, *, right: Any = False, side: Any = None, **options: Any
) -> bool:
    known = side in (None, "right") or (side == "left" and not right)
    return boundaries.dim() == 0 or not known


def _is_narrowing(x: torch.Tensor, *rest: Any, dtype: Any = None) -> bool:
    """Whether `dtype` cannot hold the numbers of the operand: norms are computed in a dtype that can."""
    if dtype is None:
        return False
    is_inexact = dtype.is_floating_point or dtype.is_complex
    return (
        not is_inexact
        or torch.promote_types(x.dtype, dtype) is not dtype
        or dtype.is_complex != x.dtype.is_complex
    )


def _is_of_another(x: torch.Tensor, dim: Any, *, dtype: Any = None) -> bool:
    return dtype not in (None, x.dtype)


def _quantizes_badly(x: torch.Tensor, scale: Any, zero_point: Any, low: Any, high: Any) -> bool:
    return low > high or (type(zero_point) is int and not low <= zero_point <= high)


def _quantizes_channels_badly(
    x: torch.Tensor, scale: Any, zero_point: Any, axis: int, low: int, high: int
) -> bool:
    return low > high or not _have_length(x.shape[axis], scale, zero_point)


def _have_length(count: Any, *lists: torch.Tensor) -> bool:
    return all(t.dim() == 1 and equal(t.shape[0], count) for t in lists)


def _is_mixed(x: torch.Tensor, *rest: Any) -> bool:
    """Whether the dtypes are mixed in a refused way. Only 16-bit inputs may have parameters of another dtype:
    float32."""
    dtypes = {p.dtype for p in rest if isinstance(p, torch.Tensor)}
    return not (dtypes <= {x.dtype} or (_of_halves(x) and dtypes == {torch.float32}))


def _of_several_dtypes(*args: Any) -> bool:
    return len({a.dtype for a in args if isinstance(a, torch.Tensor)}) > 1


def _are_too_few(
    x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> bool:
    """Whether there are too few numbers for a variance: PyTorch's kernel warns, or raises for ints."""
    count = math.prod([x.shape[d] for d in dim] if dim and x.dim() else x.shape)
    return not x.numel() > 0 or not count > (1 if correction is None else correction)


def _resizes_nothing(x: torch.Tensor, size: Any = None, *rest: Any, **options: Any) -> bool:
    """Whether the image, or the resized one, has no elements. In the overload with factors instead of sizes,
    the factors are the last argument."""
    if size is None:
        known = zip(x.shape[2:], rest[-1], strict=True)
        size = [int(n * factor) for n, factor in known if type(n) is int]
    return _is_empty(x.shape) or _is_empty(size)


def _does_not_convert(gradient: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *rest: Any) -> bool:
    """Whether the kernel refuses mixed dtypes: older PyTorch has no derivative for operands of several
    dtypes."""
    return _of_several_dtypes(gradient, x, y) and _kernel_refuses(
        aten.mse_loss_backward.default, torch.float64, torch.float32, torch.float64, 0
    )


# Other arguments that kernels refuse or warn about but the meta kernel accepts.
REFUSED_BESIDE: dict[Any, Callable[..., bool]] = {
    aten.index_fill: _is_invalid_fill,
    aten.index_fill_: _is_invalid_fill,
    aten.index_copy: _is_invalid_index_list,
    aten.index_copy_: _is_invalid_index_list,
    **{
        getattr(aten, name): _is_invalid_index
        for name in ("index_select", "index_add", "index_add_", "index_reduce", "index_reduce_")
    },
    **{
        getattr(aten, name): _are_invalid_targets
        for name in ("multi_margin_loss", "multilabel_margin_loss_forward")
    },
    **{
        getattr(aten, name): _is_invalid_loss for name in ("nll_loss_forward", "nll_loss2d_forward")
    },
    aten.linalg_vector_norm: _is_narrowing,
    aten.norm: _is_narrowing,
    **{func: _is_of_another for func in (aten.cumsum_, aten.cumprod_)},
    aten.im2col: lambda x, kernel, dilation, padding, stride: min(padding) < 0,
    aten.fake_quantize_per_tensor_affine_cachemask: _quantizes_badly,
    aten.fake_quantize_per_channel_affine_cachemask: _quantizes_channels_badly,
    **{
        func: lambda x, mask, *rest: mask.dtype is not torch.bool
        for func in (aten.masked_fill, aten.masked_fill_)
    },
    **{func: _are_too_few for func in (aten.var, aten.std, aten.var_mean, aten.std_mean)},
    aten.searchsorted: _is_invalid_side,
    **{func: lambda x, alpha=1.0: not alpha for func in (aten.celu, aten.celu_)},
    aten.dist: lambda *args: any(
        isinstance(a, torch.Tensor) and a.dtype is torch.bool for a in args
    ),
    aten.embedding: lambda weight, index, *rest: index.dtype not in (torch.int64, torch.int32),
    aten.bucketize: lambda x, boundaries, **options: boundaries.dim() != 1,
    # The weight is multiplied afterwards.
    aten.binary_cross_entropy: lambda x, target, *rest: _of_several_dtypes(x, target),
    aten.binary_cross_entropy_backward: lambda *args: _of_several_dtypes(*args[:3]),
    aten.huber_loss_backward: _of_several_dtypes,
    aten.mse_loss_backward: _does_not_convert,
    aten.mv: _of_several_dtypes,
    aten.native_layer_norm: _is_mixed,
    aten.native_group_norm: _is_mixed,
    **{getattr(aten, name): _resizes_nothing for name in UPSAMPLING},
    **{
        func: lambda x, *rest: _is_empty(x.shape[1:])
        for func in (aten._adaptive_avg_pool2d, aten._adaptive_avg_pool3d)
    },
}


def _is_empty(sizes: Sequence[Any]) -> bool:
    return any(type(n) is int and n == 0 for n in sizes)


PLAIN = (torch.dtype, int, float, bool, complex, type(None))


def _check_lists(func: Any, args: Any) -> None:
    """Raises Break for lists of tensors with refused dtypes; checks the items at the same position of the
    lists."""
    is_list = [isinstance(a, list | tuple) and isinstance([*a, 0][0], torch.Tensor) for a in args]
    usual = (torch.float32, torch.float64)
    lists = [a for a, listed in zip(args, is_list, strict=True) if listed]
    if not lists or all(t.dtype in usual for a in lists for t in a):
        return
    for k in range(min(map(len, lists))):
        own = [(a[k].dtype,) if listed else a for a, listed in zip(args, is_list, strict=True)]
        plain = (a for a, listed in zip(own, is_list, strict=True) if not listed)
        if all(isinstance(a, PLAIN) for a in plain) and _kernel_refuses(func, *own):
            raise Break("op_error", f"{func} of {args[0][k].dtype}")


def check_arguments(func: Any, args: Any, kwargs: Any) -> None:
    for table in (REFUSED, REFUSED_ON_GPU):
        refuses = table.get(func)
        if (
            refuses is not None
            and refuses(args[0])
            and (table is REFUSED or args[0].device.type == "cuda")
        ):
            raise Break("op_error", f"{func} of {args[0].dtype}")
    packet = func.overloadpacket
    if packet.__name__.startswith("_foreach_"):
        _check_lists(func, args)
    beside = REFUSED_BESIDE.get(packet)
    if beside is not None and beside(*args, **kwargs):
        raise Break("op_error", f"{func} of such arguments")
    may_be = MADE.get(packet)
    if may_be is not None:
        of = kwargs.get("dtype") or getattr(args[0], "dtype", torch.get_default_dtype())
        if not may_be(of):
            raise Break("op_error", f"{func} of {of}")
