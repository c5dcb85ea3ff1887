"""Index nodes computed directly, at all positions at once."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from frameloom.ir.node import Axis, Node
from frameloom.ir.ops import Op

MEANING = {
    Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul, Op.FLOORDIV: operator.floordiv, Op.MOD: operator.mod,
    Op.LT: operator.lt, Op.LE: operator.le, Op.GT: operator.gt, Op.GE: operator.ge, Op.EQ: operator.eq, Op.NE: operator.ne,
    Op.AND: operator.and_, Op.OR: operator.or_, Op.MIN: np.minimum, Op.MAX: np.maximum, Op.NEG: operator.neg,
    Op.NOT: np.logical_not, Op.WHERE: np.where,
}  # fmt: skip
COMPARES = (Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE)
Values = Any  # arrays, or numbers


def everywhere(axes: Sequence[Axis]) -> dict[Axis, Values]:
    """The positions."""
    grid = np.meshgrid(*(np.arange(a.extent) for a in axes), indexing="ij")
    return dict(zip(axes, grid, strict=True))


def value_of(node: Node, at: Mapping[Axis, Values]) -> Values:
    if node.op is Op.CONST:
        return node.arg
    if node.op is Op.AXIS:
        return at[node.arg]
    if node.op is Op.REDUCE:
        return _folded(node, at)
    return MEANING[node.op](*(value_of(s, at) for s in node.srcs))


def _folded(node: Node, at: Mapping[Axis, Values]) -> Values:
    axes = node.arg.axes
    count = len(np.shape(next(iter(at.values())))) if at else 0
    inside = {a: np.expand_dims(v, tuple(range(-len(axes), 0))) for a, v in at.items()}
    for k, a in enumerate(axes):
        inside[a] = np.arange(a.extent).reshape([-1] + [1] * (len(axes) - k - 1))
    shape = [*np.shape(next(iter(at.values()))), *(a.extent for a in axes)] if at else [
        a.extent for a in axes
    ]  # fmt: skip
    found = np.broadcast_to(value_of(node.srcs[0], inside), shape)
    fold = {"any": np.any, "all": np.all, "sum": np.sum, "max": np.max, "min": np.min}
    return fold[node.arg.kind](found, axis=tuple(range(count, count + len(axes))))


def same(a: Values, b: Values) -> bool:
    return bool(np.all(np.equal(a, b)))
