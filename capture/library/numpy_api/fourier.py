"""`numpy.fft`: its functions, which are in Python, transform one dimension after the other by one function."""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.library.numpy_api.calls import captures
from frameloom.capture.library.numpy_api.samples import dtype_of
from frameloom.capture.library.numpy_api.ufuncs import cast
from frameloom.capture.values.const import NUMPY_DTYPES
from frameloom.errors import Break


def _transformed(
    array: torch.Tensor, n: Any, axis: int, is_real: bool, is_forward: bool, norm: Any, out: Any = None
) -> torch.Tensor:  # fmt: skip
    dtype = dtype_of(array)
    result = NUMPY.result_type(dtype, 1j)
    if array.is_complex() or (is_real and not is_forward):
        given = cast(array, result)
    else:
        given = cast(array, result.type(0).real.dtype)
    if out is not None or (dtype.itemsize == 2 and dtype.kind == "f"):
        raise Break("numpy", "fft(...) with these arguments")
    name = ("rfft" if is_forward else "irfft") if is_real else ("fft" if is_forward else "ifft")
    return getattr(torch.fft, name)(given, n, axis, norm)  # type: ignore[no-any-return]


if NUMPY_DTYPES:
    import numpy as NUMPY

    captures(NUMPY.fft._pocketfft._raw_fft, _transformed)  # type: ignore[attr-defined]
