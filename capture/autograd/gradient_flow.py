"""Gradient flow in a backward graph: which results' gradients reach a node, and which passes read it.

Mostly the operands of a node show it. But a Function of the program with several results gets zeros for
missing gradients, and may return any gradients if one of them exists; and zeros in place of a gradient that
does not exist have no operands. There, the autograd node that made the graph's node decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch.fx

from frameloom.capture.autograd.redrawn import operands_of
from frameloom.capture.recording.backward_marks import FROM, FUNCTION
from frameloom.capture.recording.captured_graph import behind

if TYPE_CHECKING:
    from frameloom.capture.autograd.history import Histories

Node = torch.fx.Node
NOTHING: Mapping[Node, Node] = {}
# The names of the placeholders, for gradients of results, from which gradients reach the node.
LEADING = "leading"
# The placeholders for gradients of results whose total gradient the node is: the sum of the gradient from
# outside and those from results that are computed from it.
TOTAL = "total"


def note_leading(nodes: Iterable[Node], histories: Histories, seeds: Sequence[Node]) -> None:
    """Notes the leading gradients where operands do not show them. `seeds`: the placeholders of gradients, in
    the order of the histories' roots."""
    for n in nodes:
        number = n.meta.get(FUNCTION, None if n.all_input_nodes else n.meta.get(FROM))
        if number in histories.leading:
            n.meta[LEADING] = [seeds[k].name for k in histories.leading[number]]


def reach(
    nodes: Iterable[Node], seeds: Sequence[Node], instead: Mapping[Node, Node] = NOTHING
) -> dict[Node, set[int]]:
    """Returns per node of a backward graph the gradients of `seeds` that reach it. `instead`: nodes that are
    read in place of others."""
    numbers = {s.name: k for k, s in enumerate(seeds)}
    reached: dict[Node, set[int]] = {s: {k} for k, s in enumerate(seeds)}
    for n in nodes:
        if (names := n.meta.get(LEADING)) is not None:
            reached[n] = {numbers[name] for name in names if name in numbers}
            continue
        for a in n.all_input_nodes:
            if (a := instead.get(a, a)) in reached:
                reached.setdefault(n, set()).update(reached[a])
    return reached


def readers_in(
    later: Iterable[Node], ends: Collection[Node], passes: Mapping[Node, set[int]], count: int
) -> dict[Node, set[int]]:
    """Returns per operand the passes, from `count` tangents, in which `later` reads it; `later` is in
    order."""
    readers: dict[Node, set[int]] = {e: set(range(count)) for e in ends}
    for n in reversed([*later]):
        # A node that depends on no tangent is computed for its readers.
        own = passes.get(n) or readers.get(n, ())
        for a in operands_of(n):
            readers.setdefault(a, set()).update(own)
    return readers


def passes_reading(
    forward: Sequence[Node], readers: Mapping[Node, set[int]], recomputed: Collection[Node]
) -> dict[Node, set[int]]:
    """Returns per node of the forward graph the passes that read it, or that compute one of `recomputed` from
    it."""
    reading = {n: set(readers.get(n, ())) for n in forward}
    for n in reversed(forward):
        if n in recomputed:
            for a in operands_of(n):
                reading.setdefault(a, set()).update(reading[n])
    return reading


def needed(graph: torch.fx.Graph, ends: Sequence[Node]) -> list[Node]:
    """Returns the nodes that `ends` depend on, in order."""
    seen = behind(ends, operands_of)
    return [n for n in graph.nodes if n in seen]
