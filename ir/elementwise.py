"""Kernels whose positions are independent: no position loads or stores an element that another one uses."""

from __future__ import annotations

from collections.abc import Sequence

from frameloom.ir.index import terms_of
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.program import Store
from frameloom.ir.substitute import topological


def elementwise(stores: Sequence[Store]) -> bool:
    """Whether the stores run over the same axes, have no reductions, and use positions only for plain strided
    accesses, so that one loop does all of it and is never cut."""
    if any(s.axes != stores[0].axes or s.scatter is not None for s in stores):
        return False
    for s in stores:
        if not _strided(s.offset):
            return False
        positions: set[Node] = set()  # nodes computed from axes, except by loads
        for n in topological([s.value]):
            if n.op is Op.REDUCE:
                return False
            if n.op is Op.LOAD:
                if len(n.srcs) > 1 or not _strided(n.srcs[0]):
                    return False
            elif n.op is Op.AXIS or any(x in positions for x in n.srcs):
                positions.add(n)
        # A value computed from positions, other than an offset, is part of the stored value.
        if s.value in positions:
            return False
    return True


def _strided(offset: Node) -> bool:
    return all(n.op is Op.AXIS for n in terms_of(offset)[0])
