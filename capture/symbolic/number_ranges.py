"""Numbers outside of the range of the dtype in which an op computes: there, PyTorch raises or wraps around,
depending on the op.

Dynamic ints get guards that the dtype holds them, and so do floats that are converted to ints; a plan checks
other floats when it reads them (runtime/executor/numbers.cpp)."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.shapes.pointwise import is_pointwise, tiny
from frameloom.capture.tensors.constant_folding import known_value
from frameloom.capture.tensors.schema import fakes_in, properties_of
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.numbers.symbolic import SYMBOLS, SymbolicNumber, outcome
from frameloom.errors import Break
from frameloom.ir.symbolic.expr import Size

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

aten = torch.ops.aten
SMALL = 128  # every dtype holds smaller numbers, except that unsigned ones hold no negative numbers
# If a number wraps around, so does their result.
MODULAR = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor)
WIDE = (torch.float64, torch.float32, torch.bfloat16, torch.complex64, torch.complex128)
# Their results have the given dtype, whatever the number.
HOLDING = (
    aten.full.default, aten.full_like.default, aten.new_full.default, aten.scalar_tensor.default, aten.fill.Scalar, aten.fill_.Scalar,
    aten.masked_fill.Scalar, aten.masked_fill_.Scalar, aten.addcmul.default, aten.addcmul_.default, aten.threshold.default, aten.threshold_.default,
)  # fmt: skip
# Of tensor arguments, they use only dtype and layout.
MADE_OF_NUMBERS = (aten.full.default, aten.full_like.default, aten.new_full.default)
# Position of the tensor argument whose number they use.
FILLED = {
    aten.masked_fill.Tensor: 2, aten.masked_fill_.Tensor: 2, aten.index_fill.int_Tensor: 3, aten.index_fill_.int_Tensor: 3,
}  # fmt: skip


def guard_ranges(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Guards that the dtype holds dynamic numbers, or specializes them."""
    for position, name in properties_of(func).scalars:
        number = args[position] if position < len(args) else kwargs.get(name)
        if not isinstance(number, SYMBOLS) or (func in MODULAR and position == 1):
            continue
        dtype = kwargs.get("dtype")
        dtypes = {dtype} if dtype else {f.dtype for f in fakes_in((args, kwargs))} - {torch.bool}
        if isinstance(number, torch.SymFloat) and func not in HOLDING:
            continue
        for dtype in set(filter(_is_inexact, dtypes)) or dtypes:
            if dtype in WIDE or (dtype is torch.int64 and isinstance(number, torch.SymInt)):
                continue
            if not _is_within(number, dtype):
                int(number) if isinstance(number, Size) else number.node.number.specialize()


def _is_within(number: Any, dtype: torch.dtype) -> bool:
    low, high = _range(dtype)
    if isinstance(number, Size):
        return number >= int(low) and number <= int(high)
    value = number.node.number
    if not isinstance(value, SymbolicNumber):
        return _holds(dtype, value.hint)
    ends = ((operator.ge, low), (operator.le, high))
    return all(outcome(value.t, fn, [value, ConstValue(end)]) for fn, end in ends)


def check_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Breaks where PyTorch itself has to decide how it treats an argument that its dtype does not hold."""
    for position, name in properties_of(func).scalars:
        number = _known(args[position] if position < len(args) else kwargs.get(name))
        if type(number) not in (int, float) or 0 <= number < SMALL:
            continue
        if isinstance(number, int) and not _holds(torch.int64, number):
            raise Break("op_error", f"{func}: {number} is no 64-bit integer")
        given = () if func in MADE_OF_NUMBERS else fakes_in((args, kwargs))
        dtypes = _computed_in(number, given, fakes_in((result,)))
        unfit = [dtype for dtype in dtypes if not _holds(dtype, number)]
        if not unfit or (func in MODULAR and position == 1):
            continue
        if all(map(_is_inexact, unfit)) and is_pointwise(func) and not _raises(func, args, kwargs):
            continue
        raise Break("op_error", f"{func}: {number} is beyond {unfit[0]}")


def check_filled(func: Any, args: tuple[Any, ...], recorder: Recorder) -> None:
    """Breaks where data decides whether the filled dtype holds the number of a tensor."""
    place = FILLED.get(func)
    if place is None or args[place].dtype is torch.bool or args[0].dtype is torch.bool:
        return
    into, given = args[0].dtype, args[place]
    low, high = _range(into)
    is_real = into.is_complex or not given.dtype.is_complex
    if is_real and all(low <= end <= high for end in _range(given.dtype)):
        return
    known = known_value(given, recorder)
    if known is not None and known.numel() == 1:
        number = complex(known.item())
        parts = [number.real, number.imag] if into.is_complex else [number.real]
        if all(_holds(into, part) for part in parts) and (into.is_complex or not number.imag):
            return
    raise Break("op_error", f"{func}: {into} may not hold the number of a tensor")


def _known(number: Any) -> Any:
    if isinstance(number, Size):
        return number.shape_env.resolved(number)
    if not isinstance(number, SYMBOLS):
        return number
    symbolic_number = number.node.number
    return symbolic_number.hint if symbolic_number.is_specialized else number


def _computed_in(
    number: int | float, given: Iterable[Any], made: Iterable[Any]
) -> set[torch.dtype]:
    """Returns the dtypes to which the number may be converted, without those of masks."""
    own = {f.dtype for f in given} - {torch.bool}
    inexact = set(filter(_is_inexact, own))
    if isinstance(number, int) and not inexact and own:
        return own
    return inexact or {f.dtype for f in made} - {torch.bool}


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _holds(dtype: torch.dtype, number: int | float) -> bool:
    low, high = _range(dtype)
    return low <= number <= high or (_is_inexact(dtype) and not math.isfinite(number))


def _range(dtype: torch.dtype) -> tuple[int | float, int | float]:
    info = torch.finfo(dtype) if _is_inexact(dtype) else torch.iinfo(dtype)
    return info.min, info.max


def _raises(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether PyTorch raises, tried with one element."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return True
    try:
        func(*map(tiny, args), **{name: tiny(a) for name, a in kwargs.items() if name != "device"})
    except (RuntimeError, TypeError):
        return True
    return False
