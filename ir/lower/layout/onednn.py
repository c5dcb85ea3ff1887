"""Calls oneDNN directly instead of PyTorch's own library calls, for F32 on the CPU where it is faster.

The caller says what is available and faster on this machine (`OneDnn`).  This file decides for which calls to
use it, and how to write them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from frameloom.ir.dtype import DType
from frameloom.ir.lower.geometry import contiguous_strides, view_of
from frameloom.ir.lower.graph_passes.constants import computing
from frameloom.ir.lower.table import Ref
from frameloom.ir.program import Buffer, Kind, View
from frameloom.ir.symbolic.expr import hint_of

if TYPE_CHECKING:
    from frameloom.ir.lower.driver import Lowering

LINEAR = "mkldnn._linear_pointwise.default"
CONVOLUTION = "mkldnn._convolution_pointwise.default"
FUNCTIONS = {"aten.relu.default": "relu"}  # functions that a call can apply to its result, exactly
MIN_MULTIPLICATIONS = 1 << 21  # below, the overhead of a oneDNN call is larger than its gain
PRODUCTS = ("aten.mm.default", "aten.addmm.default")


@dataclass(frozen=True, slots=True)
class OneDnn:
    """Which operations oneDNN does better than the calls that PyTorch would make."""

    products: bool = False  # of matrices
    convolutions: bool = False  # on channels-last tensors


def product(
    target: str, args: Sequence[Any], options: Sequence[Any]
) -> tuple[str, tuple[Any, ...]] | None:
    """Returns the oneDNN call for a matrix product; None if the product stays as it is."""
    if target not in PRODUCTS or options:
        return None
    *bias, a, b = args
    if not all(isinstance(v, View) and _is_plain(v) for v in args):
        return None
    (rows, length), columns = a.shape, b.shape[1]
    # With one row, every library reads as fast as memory allows.
    if (
        rows == 1
        or hint_of(rows * length * columns) < MIN_MULTIPLICATIONS
        or a.strides != (length, 1)
    ):
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
    """Whether rows or columns are contiguous and do not overlap."""
    (m, n), (s, t) = view.shape, view.strides
    return (t == 1 and s >= n) or (s == 1 and t >= m)


def _is_row(view: View, columns: int) -> bool:
    return view.shape in ((columns,), (1, columns)) and view.strides[-1] == 1


# --- constant weights


def packed_product(
    lowering: Lowering, call: tuple[str, tuple[Any, ...]]
) -> tuple[str, tuple[Any, ...]]:
    """Returns the call with its weight in oneDNN's layout, if the weight is a constant."""
    target, (a, weight, *rest) = call
    if weight.buffer.kind is not Kind.CONSTANT:
        return call
    pack = torch.ops.mkldnn._reorder_linear_weight
    packed = _packed(lowering, weight, (a.shape[0],), lambda w: pack(w, a.shape[0]))
    return target, (a, packed, *rest)


def packed_convolution(
    lowering: Lowering, weight: Ref, shape: Sequence[int], options: Sequence[Any]
) -> View:
    """Returns the weight in oneDNN's layout for a convolution of a tensor of this shape."""
    stride, padding, dilation, _, _, groups = options
    given = (tuple(padding), tuple(stride), tuple(dilation), groups, tuple(shape))
    pack = torch.ops.mkldnn._reorder_convolution_weight
    return _packed(lowering, view_of(weight), given, lambda w: pack(w, *given))


def _packed(
    lowering: Lowering, weight: View, key: tuple[Any, ...], pack: Callable[[torch.Tensor], Any]
) -> View:
    """Returns a constant that `pack` makes of another one; equal requests share it."""
    packed = lowering.layouts.packed.get((weight, key))
    if packed is None:
        with computing():
            tensor = pack(lowering.tensor(weight))
        name = f"{weight.buffer.name}_packed{len(lowering.layouts.packed)}"
        strides = contiguous_strides(weight.shape)  # a formality: only oneDNN reads it
        buffer = Buffer(name, None, weight.shape, strides, Kind.CONSTANT, torch.float32)
        lowering.constants[buffer] = tensor
        packed = lowering.layouts.packed[weight, key] = View(buffer, weight.shape, strides)
    return packed


def fused_activation(
    node: torch.fx.Node, returned: Collection[tuple[torch.fx.Node, int]]
) -> tuple[torch.fx.Node, str]:
    """Returns the last node that a call for `node` can compute as well, and the function that it applies for
    that."""
    if len(node.users) == 1 and (node, 0) not in returned:
        (user,) = node.users
        if str(user.target) in FUNCTIONS:
            return user, FUNCTIONS[str(user.target)]
    return node, "none"
