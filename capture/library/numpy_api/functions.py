"""NumPy's functions and methods of arrays besides the universal functions.

Views need no computation. The others are computed by `torch._numpy`, which is PyTorch's own account of what
NumPy's functions mean in terms of tensors. Not here are functions of which it differs from NumPy; those that
find elements are in `found.py`.
"""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.interpreter.call_rules import FUNCTIONS as RULES
from frameloom.capture.library.numpy_api.calls import captures
from frameloom.capture.library.numpy_api.samples import dtype_of
from frameloom.capture.library.numpy_api.table import given, table, through
from frameloom.capture.library.numpy_api.tensors import of_tensor
from frameloom.capture.library.numpy_api.ufuncs import cast
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.arrays.ndarray import COMPUTED_ATTRIBUTES
from frameloom.capture.values.const import NUMPY_DTYPES
from frameloom.errors import Break
from frameloom.ir.symbolic.expr import Size

VIEWS = (
    "transpose swapaxes moveaxis rollaxis squeeze expand_dims atleast_1d atleast_2d atleast_3d split "
    "array_split hsplit vsplit dsplit flip fliplr flipud rot90 broadcast_to diagonal"
)
VIEW_METHODS = "transpose swapaxes squeeze view diagonal"
CREATORS = "zeros ones linspace logspace eye identity tri"
# Views for some arguments, new arrays for others.
BOTH = "real imag"
COMPUTED = (
    "sum prod mean std var max min amax amin argmax argmin all any cumsum cumprod ptp count_nonzero "
    "concatenate stack vstack hstack dstack column_stack dot inner outer tensordot vdot kron cross trace "
    "repeat tile take_along_axis diff tril triu diag round around "
    "zeros_like ones_like full_like empty_like sort isclose nan_to_num meshgrid einsum"
)
# Their answers depend on no elements.
TELLING = (
    "result_type promote_types can_cast min_scalar_type iscomplexobj isrealobj issubdtype isscalar"
)
METHODS = (
    "sum prod mean std var max min argmax argmin all any cumsum cumprod dot trace repeat round "
    "__getitem__"
)


def _register(owner: Any, names: str, within: str | None = "", **how: Any) -> None:
    """Registers functions of a module or class of NumPy: the table has them `within` a class or module of it."""
    for name in names.split():
        fn = getattr(owner, name, None)
        if fn is not None:
            captures(fn, None if within is None else through(name, within), **how)


def _reshape(array: torch.Tensor, *shape: Any, order: str = "C") -> torch.Tensor:
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    if order == "F":
        return _reversed(torch.reshape(_reversed(array), tuple(sizes)[::-1]))
    if order != "C":
        raise Break("numpy", f"reshape(...) in order {order}")
    return torch.reshape(array, sizes)


def _ravel(array: torch.Tensor, order: str = "C") -> torch.Tensor:
    return _reshape(array, -1, order=order)


def _reversed(array: torch.Tensor) -> torch.Tensor:
    return array.permute(*range(array.ndim - 1, -1, -1))


def _arange(*bounds: Any, dtype: Any = None) -> torch.Tensor:
    if not all(isinstance(n, int | Size) for n in bounds):
        raise Break("numpy", "arange(...) of these arguments")
    return cast(torch.arange(*bounds), NUMPY.dtype(int if dtype is None else dtype))


def _astype(array: torch.Tensor, dtype: Any, *how: Any, **named: Any) -> torch.Tensor:
    """Computes a cast; how it is laid out, and whether it may be the array itself, are NumPy's answers."""
    return cast(array, NUMPY.dtype(dtype))


def _copy(array: torch.Tensor, *how: Any, **named: Any) -> torch.Tensor:
    return array.clone()


def _conjugate(array: torch.Tensor) -> torch.Tensor:
    return torch.conj_physical(array)


def _full(shape: Any, value: Any, dtype: Any = None) -> torch.Tensor:
    wanted = NUMPY.result_type(*_dtypes_in(value)) if dtype is None else NUMPY.dtype(dtype)
    return cast(value, wanted).expand(shape).clone()


def _sort_in_place(array: torch.Tensor, axis: int = -1, **how: Any) -> None:
    array.copy_(torch.sort(array, dim=axis).values)


def _argsort(array: torch.Tensor, axis: int = -1, kind: Any = None, **how: Any) -> torch.Tensor:
    """Computes the order of the elements. Others than stable sorts leave open the order of equal elements."""
    if kind not in ("stable", "mergesort") or how:
        raise Break("numpy", "argsort(...) that is not stable")
    return torch.argsort(array, dim=axis, stable=True)


def _array(items: Any, dtype: Any = None, ndmin: int = 0, **how: Any) -> torch.Tensor:
    """Computes an array of numbers and arrays in lists and tuples."""
    wanted = NUMPY.result_type(*_dtypes_in(items)) if dtype is None else NUMPY.dtype(dtype)
    made = cast(items, wanted)
    return made.reshape((*[1] * (ndmin - made.ndim), *made.shape))


def _dtypes_in(items: Any) -> list[Any]:
    if isinstance(items, list | tuple):
        return [dtype for item in items for dtype in _dtypes_in(item)]
    return [dtype_of(items) if isinstance(items, Fake) else NUMPY.asarray(items).dtype]


def _set_item(array: torch.Tensor, key: Any, value: Any) -> None:
    if isinstance(value, Fake):
        value = value.clone()  # it may be part of the array; NumPy reads all of it first
    table().ndarray(array).__setitem__(given(key), given(value))


def _copy_to(array: torch.Tensor, value: Any, casting: Any = None, where: Any = True) -> None:
    new = cast(value, dtype_of(array)).clone()
    array.copy_(new if where is True else torch.where(cast(where, NUMPY.dtype(bool)), new, array))


def _take(array: torch.Tensor, indices: Any, axis: Any = None, **how: Any) -> Any:
    take = through("take")
    if not isinstance(indices, Fake) or indices.ndim:
        return take(array, indices, axis=axis, **how)
    return take(array, indices.reshape(1), axis=axis, **how).squeeze(0 if axis is None else axis)


def _empty(shape: Any, dtype: Any = float, **how: Any) -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, NUMPY.dtype(dtype).name))


def _roll(array: torch.Tensor, shift: Any, axis: Any = None) -> torch.Tensor:
    shifts = tuple(shift) if isinstance(shift, list | tuple) else (shift,)
    axes = tuple(axis) if isinstance(axis, list | tuple) else () if axis is None else (axis,)
    if axes and len(shifts) != len(axes):
        wide = max(len(shifts), len(axes))
        shifts, axes = (part * wide if len(part) == 1 else part for part in (shifts, axes))
    if not axes and len(shifts) != 1:
        raise Break("numpy", "roll(...) by these numbers")
    return torch.roll(array, shifts, axes)


def _fill(array: torch.Tensor, value: Any) -> None:
    table().ndarray(array).fill(given(value))


if NUMPY_DTYPES:
    import numpy as NUMPY

    _register(NUMPY, VIEWS)
    _register(NUMPY, BOTH + " " + COMPUTED)
    _register(NUMPY, "clip", takes_out=True)
    _register(NUMPY, CREATORS, creates=True)
    captures(NUMPY.arange, _arange, creates=True)
    captures(NUMPY.full, _full, creates=True)
    captures(NUMPY.empty, _empty, creates=True)
    captures(NUMPY.roll, _roll)
    captures(NUMPY.copy, _copy)
    for _fn in (NUMPY.take, NUMPY.ndarray.take, NUMPY.generic.take):
        captures(_fn, _take)
    for _fn in (
        NUMPY.array,
        NUMPY.asarray,
        NUMPY.asanyarray,
        NUMPY.ascontiguousarray,
        NUMPY.asfortranarray,
    ):
        captures(_fn, _array, creates=True)
    for _fn in (NUMPY.asarray, NUMPY.asanyarray):
        RULES[_fn] = of_tensor(RULES[_fn])
    _register(NUMPY, TELLING, None, tells=True)
    _register(NUMPY.lib.array_utils, "normalize_axis_index", None, tells=True)
    captures(NUMPY.argsort, _argsort)
    captures(NUMPY.ndarray.sort, _sort_in_place, writes=True)
    for _owner in (NUMPY, NUMPY.ndarray, NUMPY.generic):
        captures(_owner.reshape, _reshape)
        captures(_owner.ravel, _ravel)
    captures(NUMPY.ndarray.flatten, _ravel)
    captures(NUMPY.ndarray.argsort, _argsort)
    for _cls in (NUMPY.ndarray, NUMPY.generic):
        _register(_cls, METHODS, "ndarray")
        _register(_cls, "clip", "ndarray", takes_out=True)
        captures(_cls.astype, _astype)
        captures(_cls.copy, _copy)
        for _name in ("conj", "conjugate"):
            captures(getattr(_cls, _name), _conjugate)
        _register(_cls, VIEW_METHODS, "ndarray")
    captures(NUMPY.ndarray.__setitem__, _set_item, writes=True)
    captures(NUMPY.ndarray.fill, _fill, writes=True)
    captures(NUMPY.copyto, _copy_to, writes=True)
    for _name, _read in COMPUTED_ATTRIBUTES.items():
        captures(_read, {"T": _reversed, "mT": _read}.get(_name, through(_name)))
