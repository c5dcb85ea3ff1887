"""Type promotion by TensorIterator's rules: dimensioned tensors, then 0-dimensional ones, then numbers.

`pointwise` wraps a formula over scalars into a lowering: operands are broadcast, converted to the common
dtype (F32 for 16-bit floats), and Python numbers become constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr, Number
from frameloom.ir.lower.numbers import Scalar
from frameloom.ir.lower.table import Call, Decline, Function, Ref, lowering, read
from frameloom.ir.node import const
from frameloom.ir.program import is_cuda
from frameloom.ir.symbolic.expr import Size

# Arguments with these names take part in promotion even as numbers; other numbers are parameters of the
# formula.
PROMOTED = frozenset({"self", "other", "exponent", "min", "max"})


def _combine(higher: Any, lower: Any) -> Any:
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_floating_point or higher.is_complex:
        if lower.is_complex and not higher.is_complex:
            return torch.promote_types(higher, lower)
        return higher
    if higher == torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def _number_dtype(value: Number) -> Any:
    if isinstance(value, bool):
        return torch.bool
    if value.is_float if isinstance(value, Scalar) else isinstance(value, float):
        return torch.get_default_dtype()
    if isinstance(value, int | Scalar | Size):
        return torch.int64
    raise Decline


def common_dtype(operands: list[Ref | Number]) -> DType:
    """Returns the dtype that eager computes in (16-bit floats included: see `pointwise`)."""
    groups: list[Any] = [None, None, None]
    for x in operands:
        rank = (0 if x.ndim else 1) if isinstance(x, Ref) else 2
        dtype = x.torch_dtype if isinstance(x, Ref) else _number_dtype(x)
        groups[rank] = dtype if groups[rank] is None else torch.promote_types(groups[rank], dtype)
    common = DType.of(_combine(groups[0], _combine(groups[1], groups[2])))
    if common is None:
        raise Decline
    return common


def wide_dtype(dtype: DType) -> DType:
    """Returns the dtype of arithmetic on `dtype`."""
    return DType.F32 if dtype.is_half else dtype


def round_number(value: Number, dtype: DType) -> Number:
    """Returns `value` after conversion to `dtype`."""
    if dtype.is_half:
        return float(torch.tensor(value, dtype=dtype.to_torch()).item())
    return value


def operand(x: Ref | Number, call: Call, common: DType, exact: bool = False) -> Expr:
    """Returns `x` at the call's position in the wide form of `common`.  An `exact` single number is not first
    rounded to a 16-bit common dtype.  A tensor on a GPU is never `exact`."""
    wide = wide_dtype(common)
    if isinstance(x, Ref) and is_cuda(x.buffer.device):
        exact = False
    if isinstance(x, Scalar | Size):
        _check_range(common)
        return _of_size(x).cast(wide) if exact else _rounded(x, common)
    if not isinstance(x, Ref):
        return Expr(const(x if exact else round_number(x, common), wide))
    value = read(x, call.at())
    if value.dtype is common:
        return value.wide()
    return value.cast(wide) if exact and x.ndim == 0 else value.cast(common).wide()


def pointwise(
    *targets: str,
    exact: bool = False,
    exact_on_gpu: bool = False,
    by_device: bool = False,
    rounded: str = "alpha",
    rounded_on_gpu: str = "",
    halves: bool = True,
) -> Callable[[Function], Function]:
    """Registers `formula(*arguments)`: tensors and promoted numbers become Exprs, other arguments stay as
    they are.

    `exact`: a number on the right is not rounded to the dtype of a 16-bit tensor; in eager this holds for mul
    and div only.
    `exact_on_gpu`: on a GPU, no number is rounded, for add and sub, too.
    `rounded`: the name of the number that is rounded to the dtype of 16-bit tensors; `rounded_on_gpu`: the
    name of one that is rounded only on a GPU.
    `halves`: whether 16-bit floats are lowered; False if eager rounds in between or uses the steps between
    16-bit numbers.
    `by_device`: the formula also gets `on_gpu`: whether to follow CUDA's kernel.
    """

    def register(formula: Function) -> Function:
        @lowering(*targets, numbers=True, elementwise=True)
        def lower_pointwise(call: Call, *args: Any) -> Any:
            common = common_dtype(
                [x for x, name in zip(args, call.names, strict=True) if _joins(x, name)]
            )
            if call.dtype.is_float and not common.is_float:
                common = call.dtype
            if common.is_half and not halves:
                raise Decline
            on_gpu = is_cuda(call.device)
            all_exact = exact_on_gpu and on_gpu
            is_rounded = (rounded, rounded_on_gpu) if on_gpu else (rounded,)
            given: list[Any] = []
            for k, (x, name) in enumerate(zip(args, call.names, strict=True)):
                if _joins(x, name):
                    x = operand(x, call, common, all_exact or (exact and k == 1))
                elif name == rounded and all_exact:
                    x = _of_size(x).cast(wide_dtype(common)) if isinstance(x, Scalar | Size) else x
                elif isinstance(x, Scalar | Size) and (name in is_rounded or isinstance(x, Scalar)):
                    _check_range(common)
                    x = _rounded(x, common) if name in is_rounded else Expr(x.node)
                elif name in is_rounded:
                    x = round_number(x, common)
                given.append(x)
            return formula(*given, on_gpu=on_gpu) if by_device else formula(*given)

        return formula

    return register


def _joins(x: Any, name: str) -> bool:
    return isinstance(x, Ref) or (
        name in PROMOTED and isinstance(x, bool | int | float | Scalar | Size)
    )


def _of_size(x: Scalar | Size) -> Expr:
    """Returns a number that is known at run time as an expression."""
    return Expr(index.index(x)) if isinstance(x, Size) else x


def _rounded(x: Scalar | Size, dtype: DType) -> Expr:
    """Returns the value that a tensor of this dtype would hold, in the dtype of the computation."""
    value = _of_size(x)
    if dtype.is_half:
        return value.cast(DType.F32).cast(dtype).cast(DType.F32)
    return value.cast(dtype)


def _check_range(dtype: DType) -> None:
    """Declines dtypes for which eager refuses ints that do not fit."""
    if not dtype.is_float and dtype is not DType.I64:
        raise Decline
