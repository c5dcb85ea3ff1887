"""Patterns of a launch that have faster code: one loop for a softmax, wide loads of unaligned rows, fast
exponentials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frameloom.codegen.schedule.layout import stride, stride_along
from frameloom.codegen.schedule.tile_gpu import Fold, Launch, accesses
from frameloom.ir.dtype import DType
from frameloom.ir.node import Node
from frameloom.ir.ops import TRANSCENDENTAL, Op
from frameloom.ir.substitute import topological
from frameloom.ir.symbolic.expr import Size, hint_of

LOWEST = -3.4028234663852886e38
WIDE = 16  # bytes of the widest load
# Operations that keep a relative error of a few units in the last place at about the same size.
_PASSING = frozenset({Op.MUL, Op.DIV, Op.NEG, Op.WHERE, Op.RECIP, Op.ABS})


def online_sums(folds: Sequence[Fold]) -> dict[Fold, Fold]:
    """Maps each max to the sum of exp(v - max) over the same v: one loop over v computes both.

    Milakov, Gimelshein: "Online normalizer calculation for softmax" (2018).
    """
    pairs: dict[Fold, Fold] = {}
    for s in folds:
        value = s.value
        if s.arg.kind != "sum" or value.op is not Op.EXP or value.dtype is not DType.F32:
            continue
        inside = value.srcs[0]
        for m in folds:
            if m.arg.kind == "max" and inside.op is Op.SUB and inside.srcs == (m.value, m.result):
                pairs.setdefault(m, s)
    return pairs


@dataclass(frozen=True)
class AlignedRows:
    """Rows that are contiguous but start at any element. `start`: the offset of a row; `offsets`: offsets of
    accesses that are `start` plus the inner position; `width`: elements of a wide load."""

    start: Node
    offsets: frozenset[Node]
    width: int


def aligned_rows(launch: Launch) -> AlignedRows | None:
    """Returns the aligned rows of a launch whose blocks have one row and read mostly from unaligned starts;
    else None."""
    inner = launch.inner
    if inner is None or len(inner.axes) != 1 or any(d.block > 1 for d in launch.parallel):
        return None
    (a,) = inner.axes
    weights: dict[tuple[Node, int], int] = {}
    offsets: dict[Node, set[Node]] = {}
    for offset, width in accesses(launch.folds, launch.stores):
        along = stride(offset, a)
        if along is None or along[0] != 1:
            continue
        key = along[1], width
        weights[key] = weights.get(key, 0) + width
        offsets.setdefault(along[1], set()).add(offset)
    if not weights:
        return None
    (start, width), _ = max(weights.items(), key=lambda item: item[1])
    elements = WIDE // width
    steps = (stride_along(start, b) for d in launch.parallel for b in d.axes if b in start.free)
    factors = [along for along in steps if along is not None]
    if (
        not factors
        or all(hint_of(f) % elements == 0 for f in factors)
        or hint_of(inner.extent) < 4 * elements
    ):
        return None
    if launch.persistent and hint_of(inner.extent) + elements - 1 > inner.block:
        return None  # the elements before the row would need the places of its end
    if launch.longer is None and launch.persistent and isinstance(inner.extent, Size):
        return None
    return AlignedRows(start, frozenset(offsets[start]), elements)


def tolerant(launch: Launch) -> frozenset[Node]:
    """Returns functions whose last bits do not matter, because the result is rounded to 16 bits."""
    roots = [f.value for f in launch.folds] + [s.value for s in launch.stores]
    nodes = topological(roots)
    users: dict[Node, list[Node]] = {}
    for n in nodes:
        for s in n.srcs:
            users.setdefault(s, []).append(n)
    ends = set(roots)
    hidden: set[Node] = set()
    for n in reversed(nodes):
        if n in ends or not n.dtype.is_float:
            continue
        if all(
            (u.op is Op.CAST and u.dtype.is_half) or (u.op in _PASSING and u in hidden)
            for u in users[n]
        ):
            hidden.add(n)
    return frozenset(n for n in hidden if n.op in TRANSCENDENTAL)
