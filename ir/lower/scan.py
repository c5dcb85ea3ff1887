"""Cumulative sums of integers on a GPU, as sums: for short rows one launch costs less than a call of the library, and what follows
joins it.  Sums of floats are left to the library, whose order of adding up they would not have.
"""

from __future__ import annotations

from typing import Any

from frameloom.ir.lower.expr import Expr
from frameloom.ir.lower.table import Call, Decline, Ref, dimension, lowering, product, read
from frameloom.ir.node import Axis, axis, where
from frameloom.ir.node import const as constant
from frameloom.ir.program import is_cuda
from frameloom.ir.substitute import fold

MOST = 1 << 24  # additions
LONGEST = 2048


@lowering("aten.cumsum.default")
def cumsum(call: Call, x: Ref, dim: int, dtype: Any) -> Expr:
    dim = dimension(dim, x.ndim)
    if not is_cuda(x.buffer.device) or x.dtype is None or x.dtype.is_float or call.dtype.is_float:
        raise Decline
    if x.ndim == 0 or x.shape[dim] > LONGEST or product(x.shape) * x.shape[dim] > MOST:
        raise Decline
    k = Axis("k", x.shape[dim])
    at = call.at()
    here, at[dim] = at[dim], axis(k)
    value = read(x, at).cast(call.dtype)
    before = (Expr(axis(k)) <= Expr(here)).node
    return Expr(fold("sum", (k,), where(before, value.node, constant(0, call.dtype))))
