"""Casts that cancel: the middle type of a chain is dropped if it holds every value exactly."""

from __future__ import annotations

import torch

from frameloom.ir.dtype import DType
from frameloom.ir.node import Node, cast
from frameloom.ir.ops import Op
from frameloom.ir.rewrite import Rule, any_node, bools, exactly, of

_MANTISSA = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}


def holds_all(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if wide is narrow or narrow is DType.BOOL:
        return True
    if wide is DType.BOOL:
        return False
    if narrow.is_float:
        return wide.is_float and (wide.bits > narrow.bits)
    bits = narrow.bits - (narrow.kind == "i")  # of magnitude
    if wide.is_float:
        return bits <= _MANTISSA[wide]
    if wide.kind == "u":
        return narrow.kind == "u" and wide.bits >= narrow.bits
    return wide.bits - 1 >= bits


# The result of these ops is one of the sources, possibly without its sign or with the opposite sign.
_CHOOSING = {
    Op.MAX: 0,
    Op.MIN: 0,
    Op.WHERE: 1,
    Op.ABS: 0,
    Op.NEG: 0,
}  # op: the index of the first source that can be the result
_MAX_CHOICES = 64


def holds(narrow: DType, x: Node) -> bool:
    """Whether every value of `x` fits `narrow` exactly.  For example, relu's result does if its argument
    does."""
    if holds_all(narrow, x.dtype):
        return True
    if not narrow.is_float or not x.dtype.is_float:
        return False
    waiting, seen = [x], {x}
    while waiting:
        n = waiting.pop()
        first = _CHOOSING.get(n.op)
        if n.op is Op.REDUCE and n.arg.row.selects:
            first = 0
        if first is not None:
            new = [s for s in n.srcs[first:] if s not in seen]
            waiting += new
            seen.update(new)
            if len(seen) > _MAX_CHOICES:
                return False
        elif n.op is Op.CAST:
            if not holds_all(n.dtype, n.srcs[0].dtype) or not holds_all(narrow, n.srcs[0].dtype):
                return False
        elif n.op is not Op.CONST or not _is_exact(n.arg, narrow):
            return False
    return True


def _is_exact(value: float, narrow: DType) -> bool:
    return value != value or torch.tensor(value, dtype=narrow.to_torch()).item() == value


def _without_middle(outer: Node, inner: Node, x: Node) -> Node | None:
    middle = inner.dtype
    if not holds(middle, x):
        return None
    # A float outside of an integer's range converts differently from an integer, which wraps.
    if (
        middle.is_float
        and outer.dtype.is_int
        and x.dtype.is_int
        and not holds_all(outer.dtype, x.dtype)
    ):
        return None
    return cast(outer.dtype, x)


x = any_node("x")

CAST_RULES = (
    # cast(t, cast(m, x)) -> cast(t, x) if m holds every x
    Rule(of(Op.CAST, of(Op.CAST, x, name="inner"), name="outer"), _without_middle),
    # cast(x) != 0 -> cast(bool, x)
    Rule(
        of(Op.NE, of(Op.CAST, x, name="inner"), exactly(0)),
        lambda x, inner: _truth(x, inner),
        bools,
    ),
)


def _truth(x: Node, inner: Node) -> Node | None:
    return cast(DType.BOOL, x) if holds_all(inner.dtype, x.dtype) else None
