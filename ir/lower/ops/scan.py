"""Cumulative sums, products, extremes and logarithms of sums, as reductions up to a position.

The code generator computes them in one pass (ir/cumulative.py); operations before and after fuse with it.  On
a GPU, sums are as accurate as those of a tree.  On the CPU, they are equal to eager's: one element after the
other in double precision.  Logarithms of sums are loops on a GPU only.
"""

from __future__ import annotations

from typing import Any

from frameloom.ir.dtype import DType
from frameloom.ir.index import index
from frameloom.ir.lower.expr import Expr, isnan
from frameloom.ir.lower.table import Call, Decline, Ref, dimension, lowering, read
from frameloom.ir.node import Axis, Node, axis, cast, where
from frameloom.ir.node import const as constant
from frameloom.ir.program import is_cuda
from frameloom.ir.reductions import identity
from frameloom.ir.substitute import fold, substitute

MAX_LENGTH = 8192  # elements that a block holds at once, with registers to spare
MAX_STRIDED_LENGTH = 256  # the same if neighbouring results are in neighbouring rows


KINDS = {
    "aten.cumsum.default": "sum", "aten.cumprod.default": "prod", "aten.logcumsumexp.default": "logaddexp",
    "aten.cummax.default": "max", "aten.cummin.default": "min",
}  # fmt: skip


@lowering("aten.cumsum.default", "aten.cumprod.default", "aten.logcumsumexp.default")
def cumulative(call: Call, x: Ref, dim: int, *dtype: Any) -> Expr:
    return _cumulative(call, x, dim)


@lowering("aten.cummax.default", "aten.cummin.default")
def extremes(call: Call, x: Ref, dim: int) -> list[Expr | None]:
    """Returns the values and their positions: at each position, the last one up to it that was extreme, or
    NaN."""
    dim = dimension(dim, x.ndim)
    if x.ndim == 0:
        raise Decline
    values = _cumulative(call, x, dim)
    if not call.is_used(1):
        return [values, None]
    if x.shape[dim] == 1:
        return [values, Expr(index(0))]
    if not is_cuda(call.device) and call.results[0].strides[dim] == 1:
        raise Decline  # the CPU predicts that most elements change nothing: good for the library's loop
    k = Axis("k", x.shape[dim])
    at = call.at()
    here, at[dim] = at[dim], axis(k)
    value, present = read(x, at).wide(), Expr(substitute(values.node, {here.arg: axis(k)}))
    is_extreme = value.eq(present)
    if value.dtype.is_float:
        is_extreme = is_extreme | isnan(value)
    place = where(is_extreme.node, cast(DType.I32, axis(k)), constant(0, DType.I32))
    return [values, Expr(_up_to(here, k, "max", place))]


def _cumulative(call: Call, x: Ref, dim: int) -> Expr:
    kind, dim = KINDS[call.target], dimension(dim, x.ndim)
    if x.dtype is None or x.ndim == 0 or call.dtype is DType.BOOL:
        raise Decline
    length, stride = x.shape[dim], call.results[0].strides[dim]
    on_gpu = is_cuda(x.buffer.device)
    if on_gpu and length > (MAX_LENGTH if stride == 1 else MAX_STRIDED_LENGTH):
        raise Decline
    if not on_gpu and kind == "logaddexp":
        raise Decline
    k = Axis("k", length)
    at = call.at()
    here, at[dim] = at[dim], axis(k)
    value = read(x, at).cast(call.dtype).wide()
    if not on_gpu and call.dtype is DType.F32 and kind in ("sum", "prod"):
        value = value.cast(DType.F64)
    if length == 1:
        return value + 0 if kind == "sum" else value  # a sum is never -0.0
    return Expr(_up_to(here, k, kind, value.node))


def _up_to(here: Node, k: Axis, kind: str, value: Node) -> Node:
    before = (Expr(axis(k)) <= Expr(here)).node
    nothing = constant(identity(kind, value.dtype), value.dtype)
    return fold(kind, (k,), where(before, value, nothing))
