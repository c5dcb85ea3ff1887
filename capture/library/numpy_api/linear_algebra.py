"""The kernels of `numpy.linalg`: its functions, which are in Python, call them with doubles.

A matrix that is not as it must be makes PyTorch's function raise in the graph. Then the call starts again as
plain Python, which raises NumPy's error. Not here are decompositions that leave open the signs or the order
of vectors: two libraries choose them differently.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from frameloom.capture.library.numpy_api.calls import captures
from frameloom.capture.library.numpy_api.ufuncs import cast
from frameloom.capture.values.const import NUMPY_DTYPES


def _vector_solved(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve(matrix, vector[..., None])[..., 0]


def _slogdet(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    sign, logarithm = torch.linalg.slogdet(matrix)
    return sign, logarithm


KERNELS: dict[str, Any] = {
    "det": torch.linalg.det, "slogdet": _slogdet, "inv": torch.linalg.inv, "solve": torch.linalg.solve,
    "solve1": _vector_solved, "cholesky_lo": torch.linalg.cholesky,
    "cholesky_up": functools.partial(torch.linalg.cholesky, upper=True),
    "eigvalsh_lo": functools.partial(torch.linalg.eigvalsh, UPLO="L"),
    "eigvalsh_up": functools.partial(torch.linalg.eigvalsh, UPLO="U"), "svd": torch.linalg.svdvals,
}  # fmt: skip


def _computed(fn: Any) -> Any:
    def compute(*operands: torch.Tensor, signature: str) -> Any:
        loop = signature.partition("->")[0]
        return fn(*(cast(a, NUMPY.dtype(char)) for a, char in zip(operands, loop, strict=True)))

    return compute


if NUMPY_DTYPES:
    import numpy as NUMPY

    _kernels = NUMPY.linalg._umath_linalg  # type: ignore[attr-defined]
    for _name, _fn in KERNELS.items():
        captures(getattr(_kernels, _name), _computed(_fn))
    # Of an array of another class than its own, it would make one of its own.
    captures(NUMPY.ndarray.__array_wrap__, lambda wrapping, array: array)
