"""Library calls of oneDNN in place of PyTorch's own for F32 on the CPU, where they are faster.

What is there and what is faster on this machine is told from outside (`OneDnn`); here is decided which calls that is
for, and how they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frameloom.ir.dtype import DType
from frameloom.ir.program import View

LINEAR = "mkldnn._linear_pointwise.default"
LEAST = 1 << 21  # multiplications: below, a call of oneDNN costs what it saves
PRODUCTS = ("aten.mm.default", "aten.addmm.default")


@dataclass(frozen=True, slots=True)
class OneDnn:
    """What oneDNN does better than what PyTorch would call."""

    products: bool = False  # of matrices
    convolutions: bool = False  # on channels-last tensors


def product(
    target: str, args: Sequence[Any], options: Sequence[Any]
) -> tuple[str, tuple[Any, ...]] | None:
    """The call that a product of matrices becomes, None where it stays as it is."""
    if target not in PRODUCTS or options:
        return None
    *bias, a, b = args
    if not all(isinstance(v, View) and _is_plain(v) for v in args):
        return None
    (rows, length), columns = a.shape, b.shape[1]
    # One row is read as fast as memory allows, whatever the library.
    if rows == 1 or rows * length * columns < LEAST or a.strides != (length, 1):
        return None
    if not _is_dense(b) or (bias and not _is_row(bias[0], columns)):
        return None
    weight = View(b.buffer, b.shape[::-1], b.strides[::-1], b.offset)
    row = View(bias[0].buffer, (columns,), (1,), bias[0].offset) if bias else None
    return LINEAR, (a, weight, row, "none", (), "")


def _is_plain(view: View) -> bool:
    buffer = view.buffer
    return view.torch_dtype is None and buffer.dtype is DType.F32 and buffer.device == "cpu"


def _is_dense(view: View) -> bool:
    """Rows or columns lie one behind the other."""
    (m, n), (s, t) = view.shape, view.strides
    return (t == 1 and s >= n) or (s == 1 and t >= m)


def _is_row(view: View, columns: int) -> bool:
    return view.shape in ((columns,), (1, columns)) and view.strides[-1] == 1
