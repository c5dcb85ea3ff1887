"""`torch._numpy`, PyTorch's own account of what NumPy's functions mean in terms of tensors, as a table of functions
on tensors."""

from __future__ import annotations

import functools
import importlib
import operator
from typing import Any

import torch

from frameloom.capture.library.numpy_api.samples import fakes_of, map_arguments
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.values.const import DTYPE_CLASSES, NUMPY_DTYPES, NUMPY_SCALARS
from frameloom.errors import Break

# PyTorch's differ at infinities if they are complex.
PRODUCTS = frozenset(
    [
        "prod",
        "cumprod",
        "diff",
        "dot",
        "inner",
        "outer",
        "tensordot",
        "vdot",
        "kron",
        "cross",
        "einsum",
    ]
)
# How these reductions combine a result with the number from which they start.
INITIAL = {
    "sum": torch.add, "prod": torch.mul, "max": torch.maximum, "amax": torch.maximum, "min": torch.minimum,
    "amin": torch.minimum,
}  # fmt: skip


@functools.cache
def table() -> Any:
    # It imports many modules, for a tenth of a second, and most programs use no arrays.
    return importlib.import_module("torch._numpy")


def given(argument: Any) -> Any:
    """Returns the argument in the form that `torch._numpy` takes."""
    cls = type(argument)
    if isinstance(argument, Fake):
        return table().ndarray(argument)
    if issubclass(cls, NUMPY_SCALARS):
        dtype = getattr(torch, argument.dtype.name)
        return table().ndarray(torch.full((), argument.item(), dtype=dtype))
    if issubclass(cls, DTYPE_CLASSES):
        return getattr(table(), argument.name if argument.name != "bool" else "bool_")
    if isinstance(argument, type) and issubclass(argument, NUMPY_SCALARS):
        return given(NUMPY.dtype(argument))
    return map_arguments(given, argument)


def taken(result: Any) -> Any:
    return result.tensor if isinstance(result, table().ndarray) else map_arguments(taken, result)


def through(name: str, within: str = "") -> Any:
    """Returns what computes the function of that name in a class or module `within` the table."""
    find = operator.attrgetter(f"{within}.{name}" if within else name)

    def compute(*args: Any, **kwargs: Any) -> Any:
        if name in PRODUCTS and any(f.dtype.is_complex for f in fakes_of([args, kwargs])):
            raise Break("numpy", f"{name}(...) of complex numbers")
        initial = kwargs.pop("initial", None) if name in INITIAL else None
        made = taken(find(table())(*given(args), **given(kwargs)))
        if initial is None:
            return made
        if isinstance(initial, Fake):
            raise Break("numpy", f"{name}(...) with these arguments")
        return INITIAL[name](made, torch.full((), initial, dtype=made.dtype))

    compute.__name__ = name
    return compute


if NUMPY_DTYPES:
    import numpy as NUMPY
