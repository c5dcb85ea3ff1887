"""NumPy's functions and methods of arrays besides the universal functions.

Views need no computation. The others are computed by `torch._numpy`, which is PyTorch's own account of what
NumPy's functions mean in terms of tensors. Not here are functions of which it differs from NumPy, or whose
results have shapes that depend on the elements.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable
from typing import Any

import torch

from frameloom.capture.library.numpy_api.calls import captures
from frameloom.capture.library.numpy_api.samples import dtype_of, fakes_of, map_arguments
from frameloom.capture.library.numpy_api.ufuncs import cast
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.arrays.ndarray import COMPUTED_ATTRIBUTES
from frameloom.capture.values.const import DTYPE_CLASSES, NUMPY_DTYPES, NUMPY_SCALARS
from frameloom.errors import Break
from frameloom.ir.symbolic.expr import Size

VIEWS = (
    "transpose swapaxes moveaxis rollaxis squeeze expand_dims atleast_1d atleast_2d atleast_3d split "
    "array_split hsplit vsplit dsplit"
)
VIEW_METHODS = "transpose swapaxes squeeze view"
CREATORS = "zeros ones full empty linspace logspace eye identity tri"
# Views for some arguments, new arrays for others.
BOTH = "real imag"
COMPUTED = (
    "sum prod mean std var max min amax amin argmax argmin all any cumsum cumprod ptp count_nonzero "
    "concatenate stack vstack hstack dstack column_stack clip dot inner outer tensordot vdot kron cross trace "
    "repeat tile roll flip fliplr flipud rot90 take take_along_axis diff tril triu diag round around copy "
    "zeros_like ones_like full_like empty_like sort isclose nan_to_num average meshgrid"
)
# PyTorch's differ at infinities if they are complex.
PRODUCTS = frozenset(
    ["prod", "cumprod", "diff", "dot", "inner", "outer", "tensordot", "vdot", "kron", "cross"]
)
METHODS = (
    "sum prod mean std var max min argmax argmin all any cumsum cumprod clip dot trace repeat take round astype copy "
    "__getitem__"
)


@functools.cache
def _table() -> Any:
    # It imports many modules, for a tenth of a second, and most programs use no arrays.
    return importlib.import_module("torch._numpy")


def _given(argument: Any) -> Any:
    """Returns the argument in the form that `torch._numpy` takes."""
    cls = type(argument)
    if isinstance(argument, Fake):
        return _table().ndarray(argument)
    if issubclass(cls, NUMPY_SCALARS):
        dtype = getattr(torch, argument.dtype.name)
        return _table().ndarray(torch.full((), argument.item(), dtype=dtype))
    if issubclass(cls, DTYPE_CLASSES):
        return getattr(_table(), argument.name if argument.name != "bool" else "bool_")
    if isinstance(argument, type) and issubclass(argument, NUMPY_SCALARS):
        return _given(NUMPY.dtype(argument))
    return map_arguments(_given, argument)


def _taken(result: Any) -> Any:
    return result.tensor if isinstance(result, _table().ndarray) else map_arguments(_taken, result)


def _through(name: str, find: Callable[[Any], Any]) -> Any:
    """Returns what computes the function that `find` takes from the table."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        if name in PRODUCTS and any(f.dtype.is_complex for f in fakes_of([args, kwargs])):
            raise Break("numpy", f"{name}(...) of complex numbers")
        fn = find(_table())
        return _taken(fn(*_given(args), **_given(kwargs)))

    compute.__name__ = name
    return compute


def _register(
    owner: Any, names: str, find: Callable[[str], Callable[[Any], Any]] | None, **how: Any
) -> None:
    for name in names.split():
        fn = getattr(owner, name, None)
        if fn is not None:
            captures(fn, _through(name, find(name)) if find else None, **how)


def _of_module(name: str) -> Callable[[Any], Any]:
    return operator.attrgetter(name)


def _of_array(name: str) -> Callable[[Any], Any]:
    return operator.attrgetter(f"ndarray.{name}")


def _reshape(array: torch.Tensor, *shape: Any, order: str = "C") -> torch.Tensor:
    if order != "C":
        raise Break("numpy", f"reshape(...) in order {order}")
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    return torch.reshape(array, sizes)


def _ravel(array: torch.Tensor, order: str = "C") -> torch.Tensor:
    return _reshape(array, -1, order=order)


def _reversed(array: torch.Tensor) -> torch.Tensor:
    return array.permute(*range(array.ndim - 1, -1, -1))


def _arange(*bounds: Any, dtype: Any = None) -> torch.Tensor:
    if not all(isinstance(n, int | Size) for n in bounds):
        raise Break("numpy", "arange(...) of these arguments")
    return cast(torch.arange(*bounds), NUMPY.dtype(int if dtype is None else dtype))


def _where(condition: Any, left: Any, right: Any) -> torch.Tensor:
    dtype = NUMPY.result_type(*(dtype_of(a) if isinstance(a, Fake) else a for a in (left, right)))
    return torch.where(cast(condition, NUMPY.dtype(bool)), cast(left, dtype), cast(right, dtype))


def _array(items: Any, dtype: Any = None) -> torch.Tensor:
    """Computes an array of numbers and arrays in lists and tuples."""
    wanted = NUMPY.result_type(*_dtypes_in(items)) if dtype is None else NUMPY.dtype(dtype)
    return _stacked(items, wanted)


def _dtypes_in(items: Any) -> list[Any]:
    if isinstance(items, list | tuple):
        return [dtype for item in items for dtype in _dtypes_in(item)]
    return [dtype_of(items) if isinstance(items, Fake) else NUMPY.asarray(items).dtype]


def _stacked(items: Any, dtype: Any) -> torch.Tensor:
    if isinstance(items, list | tuple):
        return torch.stack([_stacked(item, dtype) for item in items])
    return cast(items, dtype)


def _set_item(array: torch.Tensor, key: Any, value: Any) -> None:
    if isinstance(value, Fake):
        value = value.clone()  # it may be part of the array; NumPy reads all of it first
    _table().ndarray(array).__setitem__(_given(key), _given(value))


def _fill(array: torch.Tensor, value: Any) -> None:
    _table().ndarray(array).fill(_given(value))


if NUMPY_DTYPES:
    import numpy as NUMPY

    _register(NUMPY, VIEWS, _of_module)
    _register(NUMPY, BOTH + " " + COMPUTED, _of_module)
    _register(NUMPY, CREATORS, _of_module, creates=True)
    captures(NUMPY.arange, _arange, creates=True)
    captures(NUMPY.where, _where)
    for _fn in (NUMPY.array, NUMPY.asarray, NUMPY.ascontiguousarray):
        captures(_fn, _array, creates=True)
    for _owner in (NUMPY, NUMPY.ndarray, NUMPY.generic):
        captures(_owner.reshape, _reshape)
        captures(_owner.ravel, _ravel)
    captures(NUMPY.ndarray.flatten, _ravel)
    for _cls in (NUMPY.ndarray, NUMPY.generic):
        _register(_cls, METHODS, _of_array)
        _register(_cls, VIEW_METHODS, _of_array)
    captures(NUMPY.ndarray.__setitem__, _set_item, writes=True)
    captures(NUMPY.ndarray.fill, _fill, writes=True)
    for _name, _read in COMPUTED_ATTRIBUTES.items():
        of_tensor = {"T": _reversed, "mT": _read}.get(_name)
        captures(_read, of_tensor or _through(_name, _of_module(_name)))
