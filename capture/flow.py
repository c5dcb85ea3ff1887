"""Which gradients of results the nodes of a backward graph get something from.

Mostly what a node reads tells.  But a Function of the program with several results gets zeros for gradients that are missing, and gives what it likes wherever one of
them is there; and zeros that stand for a gradient that nothing gives are read from nowhere.  There autograd's node tells that made the graph's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch.fx

if TYPE_CHECKING:
    from frameloom.capture.history import Histories

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
