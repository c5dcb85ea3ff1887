"""NumPy's functions that sort in part, and that search in sorted arrays. NaN is the largest number in them.

What NumPy finds in an array that is not sorted depends on its way to search, which PyTorch does not share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.interpreter.call_rules import FUNCTIONS, Args, Kwargs
from frameloom.capture.library.numpy_api.calls import captures, known_elements
from frameloom.capture.library.numpy_api.samples import dtype_of
from frameloom.capture.library.numpy_api.ufuncs import cast
from frameloom.capture.library.polyfill import in_python
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.arrays.ndarray import ArrayValue
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NUMPY_DTYPES, ConstValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def _partition(array: torch.Tensor, kth: Any, axis: Any = -1, **how: Any) -> torch.Tensor:
    """Sorts: all elements that a partition puts in their places are there."""
    if array.is_complex():
        raise Break("numpy", "partition(...) of complex numbers")
    if axis is None:
        array, axis = array.reshape(-1), 0
    return torch.sort(array, dim=axis).values


def _partition_in_place(array: torch.Tensor, kth: Any, axis: int = -1, **how: Any) -> None:
    array.copy_(_partition(array, kth, axis, **how))


def _for_numpys_own(otherwise: Any) -> Any:
    """Returns the rule for a partition whose other elements nobody looks at. Their order is that of NumPy's
    algorithm."""

    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if t.frame.code not in LOOK_AT_PLACES:
            raise Break("numpy", "partition(...)")
        return otherwise(t, args, kwargs)  # type: ignore[no-any-return]

    return rule


def _searchsorted(
    array: torch.Tensor, keys: Any, side: str = "left", sorter: Any = None
) -> torch.Tensor:
    dtype = NUMPY.result_type(dtype_of(array), _dtype_in(keys))
    if sorter is not None or dtype.kind == "c":
        raise Break("numpy", "searchsorted(...) with these arguments")
    return places(cast(array, dtype), cast(keys, dtype), side == "right")


def _dtype_in(keys: Any) -> Any:
    return dtype_of(keys) if isinstance(keys, Fake) else NUMPY.asarray(keys).dtype


def places(array: torch.Tensor, keys: torch.Tensor, right: bool) -> torch.Tensor:
    """Returns where keys belong in a sorted array. PyTorch takes NaN for smaller than any number that it is
    compared with."""
    first = torch.searchsorted(array, keys.contiguous(), right=right)
    if not array.is_floating_point():
        return first
    numbers = (array == array).sum()
    behind = array.shape[0] if right else numbers
    return torch.where(keys != keys, behind, torch.minimum(first, numbers))


def _interp(keys: Any, at: Any, values: Any, left: Any = None, right: Any = None) -> torch.Tensor:
    """Computes with doubles, step by step as NumPy does."""
    double = NUMPY.dtype(float)
    x, at, values = (cast(operand, double) for operand in (keys, at, values))
    last = at.shape[0] - 1
    if not isinstance(last, int) or last < 1:
        raise Break("numpy", "interp(...) between these points")
    place = places(at, x, right=True) - 1
    low = place.clamp(0, last - 1)
    below, above, start, end = (
        line[part.reshape(-1)].reshape(x.shape) for line in (at, values) for part in (low, low + 1)
    )
    slope = (end - start) / (above - below)
    made = slope * (x - below) + start
    made = torch.where(made != made, slope * (x - above) + end, made)
    made = torch.where((made != made) & (start == end), start, made)
    made = torch.where(below == x, start, made)
    made = torch.where(place >= last, values[last], made)
    made = torch.where(x > at[last], values[last] if right is None else cast(right, double), made)
    made = torch.where(place < 0, values[0] if left is None else cast(left, double), made)
    return torch.where(x != x, x, made)


def _monotonicity(otherwise: Any) -> Any:
    """Returns the rule for the question whether an array is sorted, of one that is the same in each call."""

    def rule(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        array = t.look(args[0])
        known = known_elements(t, array.tensor(t).fake) if isinstance(array, ArrayValue) else None
        if known is None or len(args) != 1 or kwargs:
            raise Break("numpy", "whether an array is sorted")
        return ConstValue(otherwise(known))

    return rule


def _isin(
    array: torch.Tensor, elements: Any, assume_unique: bool = False, invert: bool = False, kind: Any = None
) -> torch.Tensor:  # fmt: skip
    dtype = NUMPY.result_type(dtype_of(array), _dtype_in(elements))
    return torch.isin(cast(array, dtype), cast(elements, dtype).reshape(-1), invert=invert)


def _median_or_nan(data: Any, result: Any, axis: int) -> Any:
    """Interpreted: NumPy's function without its branch for data that have no NaN."""
    if data.size == 0:
        return result
    last = data.take(-1, axis=axis)  # of sorted numbers
    is_nan = NUMPY.isnan(last)
    if isinstance(result, NUMPY.generic):
        return NUMPY.where(is_nan, last, result)[()]
    NUMPY.copyto(result, last, where=is_nan)
    return result


LOOK_AT_PLACES: set[Any] = set()
if NUMPY_DTYPES:
    import numpy as NUMPY

    # NumPy's medians and quantiles.
    _functions = NUMPY.lib._function_base_impl  # type: ignore[attr-defined]
    for _name in ("_median", "_quantile"):
        LOOK_AT_PLACES.add(getattr(_functions, _name).__code__)
    in_python(NUMPY.lib._utils_impl._median_nancheck)(_median_or_nan)  # type: ignore[attr-defined]
    captures(NUMPY.partition, _partition)
    captures(NUMPY.ndarray.partition, _partition_in_place, writes=True)
    for _fn in (NUMPY.partition, NUMPY.ndarray.partition):
        FUNCTIONS[_fn] = _for_numpys_own(FUNCTIONS[_fn])
    for _fn in (NUMPY.searchsorted, NUMPY.ndarray.searchsorted):
        captures(_fn, _searchsorted)
    written_in_c: Any = NUMPY._core.multiarray  # type: ignore[attr-defined]
    captures(written_in_c.interp, _interp)
    FUNCTIONS[written_in_c._monotonicity] = _monotonicity(written_in_c._monotonicity)
    captures(NUMPY.isin, _isin)
