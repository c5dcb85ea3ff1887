"""Rules of shapes/registry.py for the frequent ops that are of no other kind: elementwise ones with a layout of
their own, and those that join, repeat and move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from frameloom.capture.shapes.hint_layouts import with_hint_layout
from frameloom.capture.shapes.iteration import (
    as_suggested,
    dense_like,
    empty,
    equal_sizes,
    is_dense,
    is_surely_contiguous,
    iterated,
    note_not_1,
    wrap_dim,
    wrap_dims,
)
from frameloom.capture.shapes.pointwise import pointwise
from frameloom.capture.shapes.registry import FRESH, is_sized, layout, rule, sized_rule
from frameloom.capture.tensors.sized import (
    empty_strided,
    has_channels_last_strides,
    has_contiguous_strides,
    has_sizes,
)
from frameloom.ir.lower.ops.foreach import PLAIN
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.compare import equal, same
from frameloom.ir.symbolic.expr import Int, hint_of

aten = torch.ops.aten
FRESH |= {aten.repeat.default}


@rule(aten.cat.default)
def _cat(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    # Tensors with one dimension and no elements are left out, for any shape of the others.
    joined = [t for t in tensors if t.dim() != 1 or not same(t.shape[0], 0)]
    if not joined or not joined[0].dim() or any(t.dim() != joined[0].dim() for t in joined):
        return None
    shape = list(joined[0].shape)
    dim = wrap_dim(dim, len(shape))
    for t in joined[1:]:
        if any(d != dim and not equal(n, m) for d, (n, m) in enumerate(zip(t.shape, shape, strict=True))):  # fmt: skip
            return None
    shape[dim] = sum(t.shape[dim] for t in joined)
    same_dtypes = len(joined) == len(tensors) and all(t.dtype is tensors[0].dtype for t in tensors)
    if is_sized(tensors) and not any(unbacked_in(n) for t in tensors for n in (*t.shape, *t.stride())):  # fmt: skip
        # If they are not, whether they are channels-last would become a guard.
        contiguous = all(map(is_surely_contiguous, tensors))
    else:
        contiguous = not any(map(has_channels_last_strides, tensors))
    if same_dtypes and contiguous:
        return empty(shape, tensors[0].dtype)
    return with_hint_layout(func, (tensors, dim), {}, [shape])


@rule(aten.stack.default)
def _stack(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    first = tensors[0]
    if any(not equal_sizes(t.shape, first.shape) or t.dtype is not first.dtype for t in tensors):
        return None
    dim = wrap_dim(dim, first.dim() + 1)
    shape = [*first.shape[:dim], len(tensors), *first.shape[dim:]]
    # Contiguous tensors with sizes of 1 may also count as channels-last.
    if all(has_contiguous_strides(t) and t.is_contiguous() for t in tensors):
        return empty(shape, first.dtype)
    return with_hint_layout(func, (tensors, dim), {}, [shape])


@sized_rule(aten.repeat.default)
def _repeat(func: Any, x: Any, times: Sequence[Int]) -> Any:
    lead = len(times) - x.dim()
    if lead < 0 or any(n < 0 for n in times):
        return None
    return empty(
        [t * (x.shape[d - lead] if d >= lead else 1) for d, t in enumerate(times)], x.dtype
    )


@sized_rule(aten.constant_pad_nd.default)
def _pad(func: Any, x: Any, pads: Sequence[Int], value: Any = 0) -> Any:
    shape = list(x.shape)
    for k in range(len(pads) // 2):
        d = x.dim() - 1 - k
        pair = pads[2 * k : 2 * k + 2]
        left = shape[d] + sum(n for n in pair if hint_of(n) < 0 and n < 0)  # before it grows
        shape[d] = shape[d] + pair[0] + pair[1]
        if not (left >= 0 and shape[d] >= 0):
            return None
    known = [p for p in pads if not unbacked_in(p)]
    grows = any(p > 0 for p in known)
    if not grows and len(known) == len(pads):  # a slice, copied with its strides
        note_not_1(shape, is_plain=False)
        return dense_like(empty_strided(shape, x.stride(), x.dtype))
    return as_suggested(x, shape) if grows or x.is_contiguous() or x.dim() == 1 else None


@rule(aten.flip.default)
def _flip(func: Any, x: Any, dims: Sequence[int]) -> Any:
    wrap_dims(dims, x.dim())
    return dense_like(x)


@rule(aten.rot90.default)
def _rot90(func: Any, x: torch.Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """Does what eager mode does: `flip`, then a view of the result."""
    if k % 4 == 0 or len(dims) != 2 or not is_dense(x):
        return None
    wrap_dims(dims, x.dim())
    shape, strides = list(x.shape), list(x.stride())
    if k % 2:
        i, j = dims
        shape[i], shape[j], strides[i], strides[j] = shape[j], shape[i], strides[j], strides[i]
    return empty_strided(shape, strides, x.dtype)


@rule(aten.roll.default)
def _roll(func: Any, x: Any, shifts: Any, dims: Any = ()) -> Any:
    if is_sized((x, shifts)):
        return with_hint_layout(func, (x, shifts, dims), {}, [x.shape])
    if not x.numel():
        return dense_like(x) if dims else empty(x.shape, x.dtype)
    if dims and len(dims) != len(shifts):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}"
        )
    for dim in dims:
        wrap_dim(dim, x.dim())
    if x.is_contiguous() and len(dims) == 1 and not has_channels_last_strides(x):
        return empty(x.shape, x.dtype)
    if not dims:
        return None
    for shift, dim in zip(shifts, dims, strict=True):  # the same steps as the kernel
        start = -shift % x.shape[dim]
        x = torch.cat([x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)], dim)
    return x


@layout(aten.roll.default, devices=("cuda",))
@layout(aten.renorm.default)
def _contiguous(meta: Any, *args: Any) -> Any:
    return empty(meta.shape, meta.dtype)


@rule(aten.diag_embed.default)
def _diag_embed(func: Any, x: torch.Tensor, *args: Any, **options: Any) -> Any:
    """The kernel writes into a fresh tensor; the meta kernel permutes."""
    if has_sizes(x.shape):
        return None
    result = func(x, *args, **options)
    return empty(result.shape, result.dtype)


# --- per element


@rule(aten.where.self)
def _where(func: Any, condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
    if condition.dtype is not torch.bool:
        return None
    # The kernel converts the operands itself, which makes them dense.
    dtype = torch.result_type(a, b)
    return iterated([condition, *(t if t.dtype is dtype else dense_like(t) for t in (a, b))], dtype)


@rule(aten.complex.default, aten.polar.default)
def _complex(func: Any, a: Any, b: Any) -> Any:
    if a.dtype is not b.dtype or not a.is_floating_point():
        return None
    return iterated([a, b], a.dtype.to_complex())


@layout(aten.angle.default, devices=("cpu",))
def _angle(meta: Any, x: Any) -> Any:
    return empty(meta.shape, meta.dtype) if x.is_complex() else meta


@rule(aten.isinf.default)
def _isinf(func: Any, x: torch.Tensor) -> Any:
    """Computes `x.abs() == inf`; for complex numbers it checks both parts, and for ints nothing."""
    if x.is_complex():
        real = x.dtype.to_real()
        x = empty_strided(x.shape, [2 * s for s in x.stride()], real)
    elif not x.is_floating_point():
        return dense_like(x, torch.bool)
    return pointwise(aten.eq.Scalar, pointwise(aten.abs.default, x), math.inf)


@rule(aten.rsub.Tensor)
def _rsub(func: Any, x: torch.Tensor, other: torch.Tensor, alpha: Any = 1) -> Any:
    return pointwise(aten.sub.Tensor, other, x, alpha=alpha)


@sized_rule(aten.bernoulli.p, aten.bernoulli.default, aten._safe_softmax.default)
def _as_first(func: Any, x: Any, *args: Any, **options: Any) -> Any:
    return with_hint_layout(func, (x, *args), options, [x.shape])


@sized_rule(aten.log_sigmoid_forward.default)
def _log_sigmoid(func: Any, x: Any) -> Any:
    return with_hint_layout(func, (x,), {}, [x.shape, x.shape])


@layout(aten.log_sigmoid_forward.default, devices=("cpu",))
def _log_sigmoid_on_cpu(meta: Any, x: Any) -> Any:
    """The result is a fresh tensor, and so is the tensor saved for the backward pass."""
    return tuple(empty(m.shape, m.dtype) for m in meta)


@sized_rule(aten.glu.default)
def _glu(func: Any, x: Any, dim: int = -1) -> Any:
    if not x.dim() or x.shape[wrap_dim(dim, x.dim())] % 2 != 0:
        return None
    shape = list(x.shape)
    shape[dim] = shape[dim] // 2
    return with_hint_layout(func, (x, dim), {}, [shape])


@rule(aten.mvlgamma.default)
def _mvlgamma(func: Any, x: torch.Tensor, p: int) -> Any:
    """Leaves it to the meta kernel: the op sums over a dimension that is added after the others."""
    return None


@rule(aten.frexp.Tensor)
def _frexp(func: Any, x: torch.Tensor) -> Any:
    return (dense_like(x), dense_like(x, torch.int32)) if is_dense(x) else None


# --- lists


@rule(aten._foreach_addcmul.Tensor, aten._foreach_addcdiv.Tensor)
def _foreach_with_numbers(func: Any, tensors: Any, first: Any, second: Any, numbers: Any) -> Any:
    # The meta kernel would read the numbers.
    plain = aten.addcmul.default if func is aten._foreach_addcmul.Tensor else aten.addcdiv.default
    if not numbers.dim() == 1 or not len(numbers) == len(tensors) == len(first) == len(second):
        raise RuntimeError("tensor lists and scalars of different lengths")
    return [plain(x, a, b) for x, a, b in zip(tensors, first, second, strict=True)]


def _foreach(func: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """For lists of floats with the same dtypes and layouts, each result is like its tensor."""
    if not isinstance(tensors, list | tuple):
        return None
    lists = [a for a in args if isinstance(a, list | tuple) and a and hasattr(a[0], "dtype")]
    if any(len(a) != len(tensors) for a in args if isinstance(a, list | tuple)):
        return None
    others = [a for a in args if isinstance(a, complex | torch.Tensor)]
    if any(isinstance(a, complex) or a.dim() or a.dtype.is_complex for a in others):
        return None
    for k, t in enumerate(tensors):
        properties = t.dtype, t.shape, t.stride()
        if not t.dtype.is_floating_point or not t.is_contiguous() or (others and not t.dim()):
            return None
        if any((a[k].dtype, a[k].shape, a[k].stride()) != properties for a in lists):
            return None
    return [empty(t.shape, t.dtype) for t in tensors]


for _name in PLAIN:
    _packet, _, _overload = _name.partition(".")
    # PLAIN has ops that only later versions of PyTorch have.
    if (_op := getattr(getattr(aten, f"_foreach_{_packet}", None), _overload, None)) is not None:
        rule(_op)(_foreach)
