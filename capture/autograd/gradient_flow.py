"""What flows to the nodes of a backward graph: from which gradients of results, and which passes read a node.

Mostly what a node reads tells.  But a Function of the program with several results gets zeros for gradients that are missing, and gives what it likes wherever one of
them is there; and zeros that stand for a gradient that nothing gives are read from nowhere.  There autograd's node tells that made the graph's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch.fx

from frameloom.capture.autograd.redrawn import operands_of
from frameloom.capture.recording.captured_graph import behind

if TYPE_CHECKING:
    from frameloom.capture.autograd.history import Histories

Node = torch.fx.Node
NOTHING: Mapping[Node, Node] = {}
FROM = "from"  # in the meta of what a backward pass records: the number of the autograd node that computes it
FUNCTION = "function"  # the same, where that is a call of a Function of the program
# The names of the placeholders, for gradients of results, that lead to such a node.
LEADING = "leading"
# Those for the gradients of results of which the node is the whole: what comes from outside, and from results that are computed from it.
TOTAL = "total"


def note_node(node: Node, kind: str = FROM) -> None:
    """Autograd's present node computes it."""
    if (of := torch._C._current_autograd_node()) is not None:  # type: ignore[attr-defined]
        node.meta[kind] = of._sequence_nr()


def note_leading(nodes: Iterable[Node], histories: Histories, seeds: Sequence[Node]) -> None:
    """Where what a node reads does not tell.  `seeds`: the placeholders of gradients, in the order of the histories' roots."""
    for n in nodes:
        number = n.meta.get(FUNCTION, None if n.all_input_nodes else n.meta.get(FROM))
        if number in histories.leading:
            n.meta[LEADING] = [seeds[k].name for k in histories.leading[number]]


def reach(
    nodes: Iterable[Node], seeds: Sequence[Node], instead: Mapping[Node, Node] = NOTHING
) -> dict[Node, set[int]]:
    """By node of a backward graph, from which of the gradients `seeds` something flows there.  `instead`: what is read in place of some."""
    numbers = {s.name: k for k, s in enumerate(seeds)}
    found: dict[Node, set[int]] = {s: {k} for k, s in enumerate(seeds)}
    for n in nodes:
        if (names := n.meta.get(LEADING)) is not None:
            found[n] = {numbers[name] for name in names if name in numbers}
            continue
        for a in n.all_input_nodes:
            if (a := instead.get(a, a)) in found:
                found.setdefault(n, set()).update(found[a])
    return found


def readers_in(
    later: Iterable[Node], ends: Collection[Node], passes: Mapping[Node, set[int]], count: int
) -> dict[Node, set[int]]:
    """By what is read: in the passes from which of `count` tangents `later`, in order, reads it."""
    found: dict[Node, set[int]] = {e: set(range(count)) for e in ends}
    for n in reversed([*later]):
        # What depends on no tangent is computed for what reads it.
        own = passes.get(n) or found.get(n, ())
        for a in operands_of(n):
            found.setdefault(a, set()).update(own)
    return found


def passes_reading(
    forward: Sequence[Node], readers: Mapping[Node, set[int]], again: Collection[Node]
) -> dict[Node, set[int]]:
    """By node of the forward graph: the passes that read it, or compute one of `again` from it."""
    found = {n: set(readers.get(n, ())) for n in forward}
    for n in reversed(forward):
        if n in again:
            for a in operands_of(n):
                found.setdefault(a, set()).update(found[n])
    return found


def needed(graph: torch.fx.Graph, ends: Sequence[Node]) -> list[Node]:
    """The nodes that `ends` depend on, in order."""
    seen = behind(ends, operands_of)
    return [n for n in graph.nodes if n in seen]
