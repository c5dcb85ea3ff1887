"""Checkpointed regions, and which of the inputs they read may change before the backward pass.

Plain PyTorch keeps the arguments of a region as autograd keeps what it saves, and looks that nobody has changed them.  What else the region reads
(weights, what a closure holds) it finds when it computes the region again, changed or not, and nobody looks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.fx

if TYPE_CHECKING:
    from frameloom.capture.history import Histories

Node = torch.fx.Node
NO_END = 1 << 64
REGION = "region"  # in a node's meta: its Region


@dataclass(frozen=True, eq=False)
class Stretch:
    """A checkpointed part of the program: the numbers of the autograd nodes that it makes, from `first` to before `end`."""

    first: int
    end: int
    arguments: tuple[Any, ...]  # the Memory of those that are tensors


@dataclass(frozen=True)
class Region:
    """Where a node lies: in a part of the program that the user has computed again."""

    is_result: bool  # what the rest of the program reads may be saved
    reentrant: bool
    stretch: Stretch


class Regions:
    """Those of a recording; which memories (identities) eager saves in each, and which for the rest of the program."""

    def __init__(self, graph: torch.fx.Graph, histories: Histories) -> None:
        regions = (n.meta.get(REGION) for n in graph.nodes)
        stretches = sorted({r.stretch for r in regions if r is not None}, key=lambda s: s.first)
        self.inside = {s: histories.saved_between(s.first, s.end) for s in stretches}
        self.outside = {id(memory) for s in stretches for memory in s.arguments}
        ends = [0, *(n for s in stretches for n in (s.first, s.end)), NO_END]
        for first, end in zip(ends[::2], ends[1::2], strict=True):
            self.outside |= histories.saved_between(first, end)

    def results(self, nodes: Iterable[Node]) -> set[Node]:
        """Of the results of regions, those that eager saves for the rest of the program, and does not compute again for it."""
        return {
            n
            for n in nodes
            if (region := n.meta.get(REGION)) is not None
            and region.is_result
            and id(memory_of(n)) in self.outside
        }

    def may_change(
        self,
        kept: Sequence[Node],
        forward: Sequence[Node],
        saved: Collection[Node],
        again: Collection[Node],
    ) -> set[Node]:
        """Those of the inputs `kept` that only regions read.  Not where the compiled pass could not do as eager with another value: what is there
        once, and in eager twice, as it was, and computed again for the region."""
        if not self.inside:
            return set()
        found = {n for n in kept if id(memory_of(n)) not in self.outside}
        own = {id(memory_of(n)) for n in found}
        reads: dict[Node, set[Node]] = {n: {n} for n in found}
        for n in forward:
            of = set().union(*(reads.get(a, ()) for a in n.all_input_nodes))
            if of and id(memory_of(n)) not in own and self._is_there_once(n, saved, again):
                found -= of
            if of:
                reads[n] = of
        return found

    def _is_there_once(self, n: Node, saved: Collection[Node], again: Collection[Node]) -> bool:
        stretch = _stretch(n)
        users = [_stretch(u) for u in n.users if u in again]
        if n in saved:
            return stretch is not None and (
                id(memory_of(n)) in self.inside[stretch] or stretch in users
            )
        if n in again:
            others = (own for s, own in self.inside.items() if s is not stretch)
            alone = stretch is not None and all(u is stretch for u in users)
            return not alone or any(
                id(memory_of(n)) in memories for memories in (self.outside, *others)
            )
        return False


def _stretch(n: Node) -> Stretch | None:
    region = n.meta.get(REGION)
    return region and region.stretch


def memory_of(n: Node) -> Any:
    """Of the tensor that the node stands for; None if it stands for none."""
    return getattr(n.meta.get("val"), "memory", None)
