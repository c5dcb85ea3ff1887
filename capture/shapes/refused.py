"""Dtypes, sizes and indices that kernels refuse or warn about, but shape inference accepts. An op with such
arguments breaks the graph, so that the program's own call raises or warns.

What is refused is registered beside the rule of an op; here are ops of other kinds."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from frameloom.capture.shapes.registry import load_rules
from frameloom.errors import Break
from frameloom.ir.symbolic.compare import equal

aten = torch.ops.aten
Check = Callable[..., bool]
# By the op: whether arguments are refused, and on which kind of device alone.
REFUSED: dict[Any, list[tuple[Check, str | None]]] = {}
PLAIN = (torch.dtype, int, float, bool, complex, type(None))


def check_arguments(func: Any, args: Any, kwargs: Any) -> None:
    load_rules()
    for refuses, device in REFUSED.get(func, ()):
        if (device is None or args[0].device.type == device) and refuses(*args, **kwargs):
            raise Break("op_error", f"{func} of {args[0].dtype}, with such arguments")
    if func._opname.startswith("_foreach_"):
        _check_lists(func, args)
    may_be = MADE.get(func.overloadpacket)
    if may_be is not None:
        of = kwargs.get("dtype") or getattr(args[0], "dtype", torch.get_default_dtype())
        if not may_be(of):
            raise Break("op_error", f"{func} of {of}")


def refuse(*funcs: Any, device: str | None = None) -> Callable[[Check], Check]:
    """Registers what tells whether kernels refuse the arguments of these ops."""

    def register(refuses: Check) -> Check:
        for func in funcs:
            REFUSED.setdefault(func, []).append((refuses, device))
        return refuses

    return register


def overloads(*packets: Any) -> list[Any]:
    return [getattr(packet, name) for packet in packets for name in packet.overloads()]


def _named(*names: str) -> list[Any]:
    return overloads(*(getattr(aten, name) for name in names))


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


# Ops that draw or count, and the dtypes that their results may have.
MADE: dict[Any, Callable[[torch.dtype], bool]] = {
    getattr(aten, name): may_be
    for names, may_be in (
        ("rand rand_like uniform_ randn randn_like normal_", lambda of: of.is_floating_point or of.is_complex),
        ("exponential_ cauchy_ log_normal_", lambda of: of.is_floating_point),
        ("geometric_ randint randint_like randperm arange", lambda of: not of.is_complex and of is not torch.bool),
        ("random_ bernoulli_", lambda of: not of.is_complex),
        ("rrelu_with_noise rrelu_with_noise_", lambda of: of.is_floating_point and of is not torch.float16),
        ("_standard_gamma", lambda of: of in (torch.float32, torch.float64)),
    )
    for name in names.split()
}  # fmt: skip


# --- the dtype of the first argument

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot")


@refuse(*(getattr(aten, name).default for name in PRODUCTS), device="cuda")
@refuse(
    *_named("std", "var", "std_mean", "var_mean"), aten.log_sigmoid_forward.default,
    aten.binary_cross_entropy_with_logits.default, aten.logcumsumexp.default, aten.glu.default, aten.nll_loss_forward.default,
    aten.nll_loss2d_forward.default, aten._softmax.default, aten._log_softmax.default,
)  # fmt: skip
def of_ints(x: torch.Tensor, *rest: Any, **options: Any) -> bool:
    return not (x.is_floating_point() or x.is_complex())


@refuse(aten.igamma.default, aten.igammac.default, aten.angle.default, device="cuda")
def _of_halves(x: torch.Tensor, *rest: Any) -> bool:
    return x.dtype in (torch.float16, torch.bfloat16)


# Ops with kernels for few dtypes.
FEW = (torch.float32, torch.float64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
refuse(aten.multi_margin_loss.default)(lambda x, *rest: x.dtype not in FEW)
refuse(aten.masked_select.default)(lambda x, mask: x.dtype in UNSIGNED)
refuse(aten.equal.default)(lambda x, y: x.is_floating_point() and x.itemsize == 1)
refuse(aten.trace.default, device="cpu")(lambda x: _kernel_refuses(aten.trace.default, x.dtype))


# --- other arguments

refuse(*_named("bucketize"))(lambda x, boundaries, **options: boundaries.dim() != 1)
refuse(*_named("cumsum_", "cumprod_"))(lambda x, dim, *, dtype=None: dtype not in (None, x.dtype))
refuse(*_named("masked_fill", "masked_fill_"))(lambda x, mask, *rest: mask.dtype is not torch.bool)
refuse(*_named("celu", "celu_"))(lambda x, alpha=1.0: not alpha)
refuse(*_named("dist"))(lambda x, y, *rest: torch.bool in (x.dtype, y.dtype))
# The weight is multiplied afterwards.
refuse(*_named("binary_cross_entropy"))(lambda *args: _of_several_dtypes(*args[:2]))
refuse(*_named("binary_cross_entropy_backward"))(lambda *args: _of_several_dtypes(*args[:3]))


@refuse(*_named("index_fill", "index_fill_"))
def _is_invalid_fill(x: torch.Tensor, dim: Any, index: torch.Tensor, value: Any) -> bool:
    has_dims = isinstance(value, torch.Tensor) and value.dim() > 0
    return has_dims or _is_invalid_index_list(x, dim, index)


@refuse(*_named("index_copy", "index_copy_"))
def _is_invalid_index_list(x: torch.Tensor, dim: Any, index: torch.Tensor, *rest: Any) -> bool:
    return index.dtype is not torch.int64 or index.dim() > 1


@refuse(*_named("index_select", "index_add", "index_add_", "index_reduce", "index_reduce_"))
def _is_invalid_index(x: Any, dim: Any, index: torch.Tensor, *rest: Any, **options: Any) -> bool:
    return _are_no_places(x, index)


@refuse(*_named("embedding"))
def _are_no_places(weight: Any, index: torch.Tensor, *rest: Any) -> bool:
    return index.dtype not in (torch.int64, torch.int32)


@refuse(*_named("multi_margin_loss", "multilabel_margin_loss_forward"))
def _are_invalid_targets(x: torch.Tensor, target: torch.Tensor, *rest: Any) -> bool:
    return target.dtype is not torch.int64  # some take bytes, too


@refuse(*_named("nll_loss_forward", "nll_loss2d_forward"))
def _is_invalid_loss(x: torch.Tensor, target: torch.Tensor, weight: Any, *rest: Any) -> bool:
    return _are_invalid_targets(x, target) or (weight is not None and weight.dtype is not x.dtype)


@refuse(*_named("searchsorted"))
def _is_invalid_side(
    boundaries: torch.Tensor, x: Any, *, right: Any = False, side: Any = None, **options: Any
) -> bool:
    known = side in (None, "right") or (side == "left" and not right)
    return boundaries.dim() == 0 or not known


@refuse(*_named("linalg_vector_norm", "norm"))
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


@refuse(*_named("fake_quantize_per_tensor_affine_cachemask"))
def _quantizes_badly(x: torch.Tensor, scale: Any, zero_point: Any, low: Any, high: Any) -> bool:
    return low > high or (type(zero_point) is int and not low <= zero_point <= high)


@refuse(*_named("fake_quantize_per_channel_affine_cachemask"))
def _quantizes_channels_badly(
    x: torch.Tensor, scale: Any, zero_point: Any, axis: int, low: int, high: int
) -> bool:
    count = x.shape[axis]
    fit = (t.dim() == 1 and equal(t.shape[0], count) for t in (scale, zero_point))
    return low > high or not all(fit)


@refuse(*_named("var", "std", "var_mean", "std_mean"))
def _are_too_few(
    x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> bool:
    """Whether there are too few numbers for a variance: PyTorch's kernel warns, or raises for ints."""
    count = math.prod([x.shape[d] for d in dim] if dim and x.dim() else x.shape)
    return not x.numel() > 0 or not count > (1 if correction is None else correction)


@refuse(*_named("huber_loss_backward", "mv"))
def _of_several_dtypes(*args: Any) -> bool:
    return len({a.dtype for a in args if isinstance(a, torch.Tensor)}) > 1


@refuse(*_named("mse_loss_backward"))
def _does_not_convert(gradient: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *rest: Any) -> bool:
    """Whether the kernel refuses mixed dtypes: older PyTorch has no derivative for operands of several
    dtypes."""
    return _of_several_dtypes(gradient, x, y) and _kernel_refuses(
        aten.mse_loss_backward.default, torch.float64, torch.float32, torch.float64, 0
    )
