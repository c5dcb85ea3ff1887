"""Splits a store that is piecewise along an axis: a concatenation becomes one store per part.

Inside a part, the comparisons that select the part are constants, so nothing is masked or selected.  Parts
of equal length share their loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from frameloom.ir import index
from frameloom.ir.dtype import DType
from frameloom.ir.node import Axis, Node, axis
from frameloom.ir.ops import Op
from frameloom.ir.program import Store
from frameloom.ir.substitute import loads, substitute, topological
from frameloom.ir.symbolic.compare import at_most
from frameloom.ir.symbolic.expr import Int, hint_of

MIN_LENGTH = 8  # elements of a part
MAX_PARTS = 4  # parts of a store


def split(store: Store) -> list[Store]:
    """Returns the parts of `store`, or the store itself."""
    tests = [
        n for n in topological([store.value])
        if n.op in (Op.LT, Op.GE) and n.srcs[0].dtype is DType.I64 and len(n.free) == 1
    ]  # fmt: skip
    if (
        not tests
        or store.scatter is not None
        or any(n.arg == store.buffer for n in loads([store.value]))
    ):
        return [store]
    for a in store.axes:
        cuts = sorted(_cuts(tests, a), key=hint_of)
        edges = [0, *cuts, a.extent]
        if not all(at_most(low, high) for low, high in itertools.pairwise(edges)):
            continue  # the order of these symbolic sizes is known only for the captured call
        lengths = [high - low for low, high in itertools.pairwise(edges)]
        if cuts and len(lengths) <= MAX_PARTS and min(map(hint_of, lengths)) >= MIN_LENGTH:
            return [
                _slice_store(store, a, low, length)
                for low, length in zip(edges, lengths, strict=False)
            ]
    return [store]


def _cuts(tests: Sequence[Node], a: Axis) -> set[Int]:
    """Returns the positions on `a` at which a comparison changes its result."""
    cuts: set[Int] = set()
    for n in tests:
        difference = index.affine(index.sub(n.srcs[0], n.srcs[1]))
        if difference is None or difference[0] != {a: 1}:
            continue
        if 0 < -hint_of(difference[1]) < hint_of(a.extent):
            cuts.add(-difference[1])
    return cuts


def _slice_store(store: Store, a: Axis, low: Int, length: Int) -> Store:
    k = store.axes.index(a)
    part = Axis(f"{a.name.split('x')[0]}x{length}", length)
    at = {a: index.add(axis(part), index.index(low))}
    return replace(
        store,
        offset=substitute(store.offset, at),
        value=substitute(store.value, at),
        axes=(*store.axes[:k], part, *store.axes[k + 1 :]),
    )
