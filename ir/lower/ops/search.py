"""Binary search in sorted values: bucketize and searchsorted.

The number of steps is that of the longest search.  Each step does the same as eager's loop, so that even
values that are not sorted are searched at the same places.
"""

from __future__ import annotations

from collections.abc import Sequence

from frameloom.ir.dtype import DType
from frameloom.ir.index import add, index
from frameloom.ir.lower.expr import Expr, where
from frameloom.ir.lower.geometry import contiguous_strides
from frameloom.ir.lower.ops.gather import data_index, inside, wrapped
from frameloom.ir.lower.table import Call, Decline, Ref, lowering, read
from frameloom.ir.node import Node, const, load
from frameloom.ir.ops import Op

MAX_LENGTH = 1 << 24


@lowering("aten.bucketize.Tensor")
def bucketize(call: Call, x: Ref, boundaries: Ref, out_int32: bool, right: bool) -> Expr:
    return searchsorted(call, boundaries, x, out_int32, right, None, None)


@lowering("aten.searchsorted.Tensor")
def searchsorted(
    call: Call, values: Ref, x: Ref, out_int32: bool, right: bool, side: str | None, sorter: object
) -> Expr:
    if sorter is not None or (values.ndim != 1 and values.ndim != x.ndim):
        raise Decline
    if any(t.strides != contiguous_strides(t.shape) for t in (values, x)):
        raise Decline  # eager warns
    at = call.at()
    return _search(values, at[: values.ndim - 1], read(x, at), right or side == "right")


def _search(values: Ref, row: Sequence[Node], x: Expr, right: bool) -> Expr:
    length = values.shape[-1]
    if values.dtype is not x.dtype or x.dtype is DType.BOOL or not 0 < length < MAX_LENGTH:
        raise Decline
    wanted = x.wide()
    start, end = (Expr(const(n, DType.I32)) for n in (0, length))
    for _ in range(length.bit_length()):
        searching = start < end
        middle = start + (end - start).binary(Op.SHR, 1)
        probe = read(values, [*row, middle.cast(DType.I64).node], searching.node).wide()
        before = ~(probe > wanted if right else probe >= wanted)
        start = where(searching & before, middle + 1, start)
        end = where(searching & ~before, middle, end)
    return start.cast(DType.I64)


@lowering("aten.take.default", if_empty="library")
def take(call: Call, x: Ref, indices: Ref) -> Expr:
    if x.dtype is None or 0 in x.shape or x.strides != contiguous_strides(x.shape):
        raise Decline
    position = wrapped(data_index(indices, call.at()), x.numel)
    mask = inside(position, x.numel)
    message = f"index is out of range of a tensor of {x.numel} elements"
    call.check(Expr(mask), "IndexError", message)
    return Expr(load(x.buffer, add(position.node, index(x.offset)), mask))
