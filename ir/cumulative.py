"""Cumulative sums and the like.  They are ordinary reductions, `sum over k of (v where k <= i, else 0)`.

If `i` is a position of a store, one pass over k computes all of them at the cost of one: fusion and the GPU's
code generator recognize them by this form.
"""

from __future__ import annotations

from dataclasses import dataclass

from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node, axis, binary, const, index, where
from frameloom.ir.ops import Op
from frameloom.ir.reductions import identity
from frameloom.ir.substitute import compare, fold, substitute


@dataclass(frozen=True, slots=True)
class Prefix:
    """The reduction of `value` over `k` up to `limit`."""

    kind: str
    k: Axis
    value: Node
    limit: Node

    @property
    def along(self) -> Axis | None:
        """The axis whose position is the limit, if it has the extent of `k`; else None."""
        a = self.limit.arg if self.limit.op is Op.AXIS else None
        return a if a is not None and a.extent == self.k.extent else None

    @property
    def nothing(self) -> Node:
        return const(identity(self.kind, self.value.dtype), self.value.dtype)

    def up_to(self, limit: Node) -> Node:
        """Returns the reduction with another limit."""
        inside = Node(Op.LE, DType.BOOL, (axis(self.k), limit))
        return fold(self.kind, (self.k,), where(inside, self.value, self.nothing))


def prefix(n: Node) -> Prefix | None:
    """Returns `n`, a REDUCE, as a cumulative reduction; None if it is none."""
    kind, axes, source = n.arg.kind, n.arg.axes, n.srcs[0]
    if not n.arg.row.cumulative or len(axes) != 1 or source.op is not Op.WHERE:
        return None
    inside, value, other = source.srcs
    if inside.op is not Op.LE or inside.srcs[0] is not axis(axes[0]):
        return None
    cumulative = Prefix(kind, axes[0], value, inside.srcs[1])
    limit_axes = cumulative.limit.free
    if (
        axes[0] in limit_axes
        or not limit_axes.isdisjoint(value.free)
        or other is not cumulative.nothing
    ):
        return None
    return cumulative


def own_axes(n: Node) -> frozenset[Axis]:
    """Returns the axes that a reduction depends on, without the one whose position is its cumulative
    limit."""
    cumulative = prefix(n)
    return n.free if cumulative is None or cumulative.along is None else n.free - {cumulative.along}


def at(p: Prefix, everywhere: Node, along: Axis) -> Node:
    """Returns the value at the limit; `everywhere` is the value at every position of `along`."""
    last = index(p.k.extent - 1)
    place = binary(Op.MIN, binary(Op.MAX, p.limit, index(0)), last)
    value = substitute(everywhere, {along: place})
    return where(compare(Op.GE, p.limit, index(0)), value, p.nothing)
