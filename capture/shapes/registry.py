"""Infers sizes, strides and dtypes of an ATen op's results, without running it.

PyTorch's meta kernels can infer them all, but those written in Python take 100 to 900 microseconds per call,
and the first of them imports modules for about a second. The ops that are frequent in real programs have a
rule here; for all others the meta kernel runs.
In: meta tensors. Out: meta tensors. A rule may return None: then the meta kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

from frameloom.capture.shapes.inferred_cache import inferred
from frameloom.capture.shapes.probe import fit_by_probing
from frameloom.capture.tensors.sized import (
    Sized,
    SizedMeta,
    dense_strides,
    empty_strided,
    has_sizes,
    plain_if_static,
    resolved,
    specialized,
    strides_of,
)
from frameloom.config import config
from frameloom.debug import log
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.compare import equal, same
from frameloom.ir.symbolic.expr import Int, Size, hint_of
from frameloom.ir.symbolic.symint import follows, is_less, size_of

aten = torch.ops.aten
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd  # consists of other ops
Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}
SIZED_RULES: dict[Any, Rule] = {}  # for symbolic sizes; other tensors have meta kernels
_loaded = False
_POINTWISE_DTYPES: dict[Any, torch.dtype] = {}


def infer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the result of `func` on meta tensors: a meta tensor, or the structure that the op returns."""
    if not _loaded:
        load_rules()
    if _is_sized(args) or (kwargs and _is_sized(kwargs.values())):
        return inferred(_infer_sized, func, args, kwargs)
    rule = RULES.get(func)
    if rule is None and is_pointwise(func):
        rule = pointwise
    if rule is not None:
        result = rule(func, *args, **kwargs)
        if result is not None:
            return result
    return func(*args, **kwargs)


SizedMeta.infer = staticmethod(infer)


def _is_sized(args: Any) -> bool:
    return any(
        isinstance(a, SizedMeta | Size) or (isinstance(a, list | tuple) and _is_sized(a))
        for a in args
    )


def _infer_sized(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Infers results for symbolic sizes. If no rule applies, the sizes are specialized."""
    exact = RULES.get(func) if func in ALSO_UNBACKED and _has_unbacked(args) else None
    rule = exact or SIZED_RULES.get(func) or RULES.get(func)
    if rule is None and is_pointwise(func):
        rule = pointwise
    if rule is not None:
        result = rule(func, *args, **kwargs)
        if result is not None:
            return as_known(result)
    if func.has_kernel_for_dispatch_key(COMPOSITE):
        return as_known(func.decompose(*args, **kwargs))
    if not func._schema.returns:
        return None
    if (fitted := fit_by_probing(func, args, kwargs, infer)) is not None:
        return as_known(fitted)
    if "sizes" in config.logs:
        log("sizes", f"{func} has to know the sizes")
    args, kwargs = torch.fx.node.map_aggregate((args, kwargs), _specialized)  # type: ignore[assignment, misc]
    return infer(func, tuple(args), dict(kwargs))


# Ops whose rule in RULES is right for every size; other rules assume the layout at the hints.
ALSO_UNBACKED = (aten.cat.default,)


def _has_unbacked(value: Any) -> bool:
    """Whether sizes among the arguments are unbacked."""
    if isinstance(value, list | tuple):
        return any(map(_has_unbacked, value))
    return isinstance(value, SizedMeta) and any(map(unbacked_in, (*value.shape, *value.stride())))


def _specialized(a: Any) -> Any:
    return specialized(a) if isinstance(a, torch.Tensor) else int(a) if isinstance(a, Size) else a


def as_known(result: Any) -> Any:
    """Returns the result with each tensor in the class that fits: SizedMeta only if sizes are symbolic."""
    if isinstance(result, list | tuple):
        return type(result)(map(as_known, result))
    if not isinstance(result, torch.Tensor):
        return result
    if not isinstance(result, SizedMeta) and result._has_symbolic_sizes_strides:  # type: ignore[attr-defined]
        shape, strides = (
            [size_of(n) if isinstance(n, torch.SymInt) else n for n in numbers]
            for numbers in (result.shape, result.stride())
        )
        result = empty_strided(shape, strides, result.dtype)
    return plain_if_static(result)


def load_rules() -> None:
    """Imports the modules that fill RULES, at the first inference."""
    import frameloom.capture.shapes.attention_rules
    import frameloom.capture.shapes.common_rules
    import frameloom.capture.shapes.composed_rules
    import frameloom.capture.shapes.derivative_rules
    import frameloom.capture.shapes.dynamic_rules
    import frameloom.capture.shapes.image_rules
    import frameloom.capture.shapes.index_rules
    import frameloom.capture.shapes.layer_rules
    import frameloom.capture.shapes.library_rules
    import frameloom.capture.shapes.norm_rules
    import frameloom.capture.shapes.product_rules
    import frameloom.capture.shapes.scatter_rules
    import frameloom.capture.shapes.view_rules  # noqa: F401

    global _loaded
    _loaded = True


def rule(*funcs: Any) -> Callable[[Rule], Rule]:
    def register(fn: Rule) -> Rule:
        for func in funcs:
            RULES[func] = fn
        return fn

    return register


def sized_rule(*funcs: Any) -> Callable[[Rule], Rule]:
    """Registers a rule for tensors with symbolic sizes."""

    def register(fn: Rule) -> Rule:
        for func in funcs:
            SIZED_RULES[func] = fn
        return fn

    return register


def empty(shape: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(shape, list | tuple) and has_sizes(shape):
        return empty_strided(shape, strides_of(shape), dtype)
    return torch.empty(shape, dtype=dtype, device="meta")


def wrap_dim(dim: int, rank: int) -> int:
    """Returns `dim` counted from the front."""
    size = max(rank, 1)
    if not -size <= dim < size:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {dim})"
        )
    return dim % size


def wrap_dims(dims: Sequence[int], rank: int) -> set[int]:
    """Returns `dims` counted from the front; each may occur once."""
    wrapped: set[int] = set()
    for dim in dims:
        d = wrap_dim(dim, rank)
        if d in wrapped:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        wrapped.add(d)
    return wrapped


# Overloads that turn a number into a tensor.
WRAPPING = (
    "Tensor", "Scalar", "Scalar_Other", "Scalar_Self", "Scalar_Tensor", "Tensor_Scalar", "Scalar_mode", "n_scalar", "x_scalar", "other_scalar",
    "self_scalar",
)  # fmt: skip
# Elementwise ops that have no pointwise tag.
UNTAGGED = (
    aten.floor_divide.default, aten.floor_divide.Scalar, aten.hardswish.default, aten.hardsigmoid.default, aten.mish_backward.default,
    aten._prelu_kernel.default, aten.silu_backward.default, aten.leaky_relu.default,  # not tagged in 2.11
)  # fmt: skip
# Ops whose kernels allocate the result by `empty_like`.
PRESERVING = (
    aten.hardtanh.default, aten.nan_to_num.default, aten.deg2rad.default,
    aten.rad2deg.default, aten._prelu_kernel.default,
)  # fmt: skip


def is_pointwise(func: Any) -> bool:
    return torch.Tag.pointwise in func.tags or func in UNTAGGED


def pointwise(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Infers one tensor result, broadcast from the tensor arguments, with the layout that TensorIterator
    chooses."""
    if len(func._schema.returns) != 1 or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    tensors += [a for a in kwargs.values() if isinstance(a, torch.Tensor)]
    if not tensors or any(isinstance(a, list | tuple) for a in args):
        return None
    dtype = pointwise_dtype(func, args, kwargs)
    if func is aten.pow.Scalar:  # for any strides of the exponent
        return empty(tensors[0].shape, dtype)
    if func in PRESERVING or (func is aten.abs.default and tensors[0].is_complex()):
        return dense_like(tensors[0], dtype)
    shape = broadcast(*(t.shape for t in tensors))
    if shape is None:
        return None
    if not has_sizes(shape) and all(
        same_sizes(t.shape, shape) and t.is_contiguous() for t in tensors
    ):
        result = empty(shape, dtype)
        there = 0 not in shape
        usual = there and all(same_sizes(t.stride(), result.stride()) for t in tensors)
        if usual or (there and 1 not in shape):
            return result
    same_shape = operands_share_shape(func, args, shape, tensors)
    return empty_strided(shape, iterator_strides(shape, tensors, same_shape), dtype)


def operands_share_shape(
    func: Any, args: Any, shape: Sequence[Int], tensors: Sequence[torch.Tensor]
) -> bool:
    """Whether all operands that a kernel iterates over have this shape. A number in place of a tensor counts
    as a tensor without dimensions."""
    if not all(same_sizes(t.shape, shape) for t in tensors):
        return False
    wrapping = func._overloadname in WRAPPING or func is aten.floor_divide.default
    one = len(tensors) == 1 < len(args) and wrapping and func is not aten.pow.Tensor_Scalar
    if not one or len(shape) < 2:  # one dimension has one order
        return True
    if not has_sizes(shape):
        return False
    # It makes a difference for sizes of 1; if there are no elements, it matters which sizes are 1.
    return not (any(map(_is_zero, shape)) or any(map(_is_one_here, shape)))


def iterated(operands: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor | None:
    """Returns the result of a kernel that iterates over these operands, in this order."""
    shape = broadcast(*(t.shape for t in operands))
    if shape is None:
        return None
    same_shape = all(same_sizes(t.shape, shape) for t in operands)
    return empty_strided(shape, iterator_strides(shape, operands, same_shape), dtype)


def same_sizes(a: Sequence[Int], b: Sequence[Int]) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def broadcast(*shapes: Sequence[Int]) -> tuple[Int, ...] | None:
    """Returns the common shape, or None if there is none."""
    rank = max(map(len, shapes))
    result: list[Int] = [1] * rank
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            if isinstance(n, Size) or n != 1:  # a symbolic size is assumed not to be 1
                before = result[i]
                if (isinstance(before, Size) or before != 1) and not equal(before, n):
                    return None
                result[i] = n
    # If a size of 1 meets a symbolic size that is 1 in the captured call, nothing is repeated: a guard says so.
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            if _is_one(n):
                _is_one_here(result[i])
    return tuple(map(resolved, result))  # with the equalities found


def expands_to(shape: Sequence[Int], wanted: Sequence[Int]) -> bool:
    """Whether a tensor of this shape can be expanded to the shape `wanted`."""
    common = broadcast(wanted, shape)
    return common is not None and len(common) == len(wanted) and all(map(equal, common, wanted))


def iterator_strides(
    shape: tuple[int, ...], tensors: list[torch.Tensor], same_shape: bool
) -> list[int]:
    """Returns the strides of a fresh result: dense, with dimensions in the order of the inputs' strides.
    `same_shape`: whether all operands have this shape.

    Source: `reorder_dimensions` and `compute_fast_setup_type` of ATen's TensorIterator.
    """
    first = tensors[0]
    # If there are no elements, everything counts as contiguous.
    if same_shape and (all(t.is_contiguous() for t in tensors) or any(map(_is_zero_here, shape))):
        return strides_of(tuple(map(resolved, shape)))
    last = torch.channels_last
    if same_shape and len(shape) == 4 and all(t.is_contiguous(memory_format=last) for t in tensors):
        return list(dense_strides(shape, (1, 3, 2, 0)))
    same_strides = all(same_sizes(t.stride(), first.stride()) for t in tensors)
    if same_shape and same_strides and is_dense(first):
        return list(first.stride())
    permutation = _iterator_order(shape, tensors)
    if permutation == list(range(len(shape) - 1, -1, -1)):
        return strides_of(shape)
    strides: list[Int] = [0] * len(shape)
    step: Int = 1
    for d in permutation:
        strides[d] = step
        step = step * shape[d]
    return strides


def _iterator_order(shape: tuple[int, ...], tensors: list[torch.Tensor]) -> list[int]:
    """Returns the dimensions from the innermost to the outermost, in the order of the operands' strides."""
    # With current values, as for the operands: questions about these may have specialized some sizes.
    shape = tuple(map(resolved, shape))
    rank = len(shape)
    plain = list(range(rank - 1, -1, -1))
    operands = []
    for t in tensors:
        lead = rank - t.dim()
        own = [
            0 if _is_one(n) and not _is_one(m) else s
            for n, s, m in zip(t.shape, t.stride(), shape[lead:], strict=True)
        ]
        operands.append([0] * lead + own)
        repeated = [m for n, m in zip(t.shape, shape[lead:], strict=True) if _is_one(n)]
        # If these sizes are 1, nothing is repeated, and the operand's own strides count.
        note_not_1(repeated, is_plain=True)

    sizes = [n for some in (shape, *operands) for n in some if isinstance(n, Size)]
    if sizes and not any(map(unbacked_in, sizes)) and all(_in_order(shape, o) for o in operands):
        return plain

    def order(i: int, j: int) -> int:
        for strides in operands:
            a, b = strides[i], strides[j]
            if _is_zero(a) or _is_zero(b):
                continue
            if not same(a, b):
                if is_less(a, b):
                    return -1
                if is_less(b, a):
                    return 1
            if not same(shape[i], shape[j]) and is_less(shape[j], shape[i]):
                return 1
        return 0

    permutation = plain
    for i in range(1, rank):
        at = i
        for before in range(i - 1, -1, -1):
            comparison = order(permutation[before], permutation[at])
            if comparison > 0:
                permutation[before], permutation[at] = permutation[at], permutation[before]
                at = before
            elif comparison < 0:
                break
    return permutation


def note_not_1(sizes: Sequence[Int], is_plain: bool) -> None:
    """Assumes, as a layout assumption, that the sizes are not 1. `is_plain`: a size that is 1 in the captured
    call needs no assumption, because other sizes have the same layout."""
    for n in sizes:
        if isinstance(n, Size) and not (is_plain and hint_of(n) == 1):
            n.shape_env.is_one_deferred(n)


def _in_order(shape: Sequence[Int], strides: Sequence[Int]) -> bool:
    """Whether the stride of each dimension is at least the extent of the next one. Then the order is fixed,
    for any dimensions of size 1. A dimension of size 0 would go before one of size 1."""
    if any(map(_is_zero, shape)):
        return False
    there = [d for d in range(len(shape)) if not _is_zero(strides[d])]
    pairs = [(strides[j] * shape[j], strides[i]) for i, j in pairwise(there)]
    return all(hint_of(a) <= hint_of(b) for a, b in pairs) and all(a <= b for a, b in pairs)


def _is_zero(n: Int) -> bool:
    return not isinstance(n, Size) and n == 0


def _is_zero_here(n: Int) -> bool:
    """Whether the size is 0 in the captured call; if so, this becomes a guard. That it is not 0 becomes only
    a layout assumption."""
    if not isinstance(n, Size):
        return _is_zero(n)
    if hint_of(n) == 0 and not unbacked_in(n):
        return bool(n.shape_env.is_zero(n))
    n.shape_env.nonzero_deferred(n)
    return False


def _is_one(n: Int) -> bool:
    return not isinstance(n, Size) and n == 1


def _is_one_here(n: Int) -> bool:
    """Whether the size is 1 in the captured call; if so, this becomes a guard."""
    return n.shape_env.is_one_deferred(n) if isinstance(n, Size) and hint_of(n) == 1 else _is_one(n)


def is_dense(t: torch.Tensor) -> bool:
    """Whether `t` has no gaps and no overlap: some permutation of its dimensions is contiguous. Dimensions of
    size 0 and 1 do not count.

    Source: `_compute_non_overlapping_and_dense` of c10.
    """
    if t.is_contiguous():
        return True
    if isinstance(t, Sized):
        by_stride = sorted(
            range(t.dim()), key=lambda d: (hint_of(t.stride(d)), hint_of(t.shape[d]))
        )
        if follows(t.shape, t.stride(), by_stride):
            return True
        # Another order could be dense, so guards keep this one.
        for inner, outer in pairwise(by_stride):
            is_less(t.stride(outer), t.stride(inner))
        return False
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def dense_like(t: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Returns a tensor with the layout of `empty_like`: without gaps, with the dimensions in the order of
    `t`. A size of 0 counts as 1.

    Source: `infer_dense_strides` of ATen's ExpandUtils.
    """
    dtype = dtype or t.dtype
    if is_dense(t):
        return empty_strided(t.shape, t.stride(), dtype)
    order = _iterator_order(tuple(t.shape), [t])
    return empty_strided(t.shape, dense_strides(t.shape, order), dtype)


def like(t: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor | None:
    """Returns the result of `empty_like`; None if the meta kernel must infer it."""
    if not is_dense(t):
        return None
    return empty_strided(t.shape, t.stride(), dtype or t.dtype)


def tiny(a: Any) -> Any:
    """Returns the argument reduced to one element, on the CPU."""
    if isinstance(a, torch.Tensor):
        return torch.ones((1,) if a.dim() else (), dtype=a.dtype)
    return type(a)(map(tiny, a)) if isinstance(a, list | tuple) else hint_of(a)


def pointwise_dtype(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype:
    """Runs the op once on one-element tensors, so that PyTorch's own type promotion applies. The result is
    cached per op and argument types."""

    def key(a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            return (a.dtype, a.dim() > 0)
        return (
            int if isinstance(a, Size) else type(a) if isinstance(a, int | float | complex) else a
        )

    try:
        signature = (func, tuple(map(key, args)), tuple((k, key(v)) for k, v in kwargs.items()),
                     torch.get_default_dtype())  # fmt: skip
        dtype = _POINTWISE_DTYPES.get(signature)
    except TypeError:
        signature, dtype = None, None
    if dtype is None:
        dtype = func(*map(tiny, args), **{k: tiny(v) for k, v in kwargs.items()}).dtype
        if signature is not None:
            _POINTWISE_DTYPES[signature] = dtype
    return dtype
