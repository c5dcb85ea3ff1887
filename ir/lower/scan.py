"""Cumulative sums and products on a GPU, as reductions up to a position.  The code generator makes one pass of them
(ir/cumulative.py); what comes before and after joins it.  Sums are as accurate as those of a tree.
"""

from __future__ import annotations

from typing import Any

from frameloom.ir.dtype import DType
from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.table import Call, Decline, Ref, dimension, lowering, read
from frameloom.ir.node import Axis, axis, where
from frameloom.ir.node import const as constant
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import fold

LONGEST = 8192  # elements that a block holds at once, with registers to spare
LONGEST_ACROSS = 256  # the same where neighbouring results are in neighbouring rows


@lowering("aten.cumsum.default")
def cumsum(call: Call, x: Ref, dim: int, dtype: Any) -> Expr:
    return _cumulative(call, x, dim, "sum", 0)


@lowering("aten.cumprod.default")
def cumprod(call: Call, x: Ref, dim: int, dtype: Any) -> Expr:
    return _cumulative(call, x, dim, "prod", 1)


def _cumulative(call: Call, x: Ref, dim: int, kind: str, nothing: int) -> Expr:
    dim = dimension(dim, x.ndim)
    if not is_cuda(x.buffer.device) or x.dtype is None or x.ndim == 0 or call.dtype is DType.BOOL:
        raise Decline
    length, stride = x.shape[dim], call.results[0].strides[dim]
    if length > (LONGEST if stride == 1 else LONGEST_ACROSS):
        raise Decline
    k = Axis("k", length)
    at = call.at()
    here, at[dim] = at[dim], axis(k)
    value = read(x, at).cast(call.dtype).wide()
    before = (Expr(axis(k)) <= Expr(here)).node
    return Expr(fold(kind, (k,), where(before, value.node, constant(nothing, value.dtype))))
