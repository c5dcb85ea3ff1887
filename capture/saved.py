"""What the forward graph keeps for the backward graph: a minimum cut between the two.

Every value that the backward graph reads is either saved or computed again from what is saved.  Saving costs the value's
bytes, written once and read once; computing elementwise ops again costs nothing but their operands, as they are fused into
what needs them.  The cheapest choice for a whole graph is a minimum cut of a network whose edges are the values.
Source: Jain et al., "Checkmate" (2020), for recomputing as a trade; the cut is the one of He and Chen's functorch
partitioner (2022), reduced to elementwise ops.

What the program can get hold of and change is saved where eager saves it, too, and nowhere else: so that a change is noticed where
eager notices it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
import torch.fx

from frameloom.capture.aten_op import facts_of
from frameloom.capture.number_inputs import is_number
from frameloom.errors import Break

Node = torch.fx.Node
aten = torch.ops.aten
SOURCE, SINK = "source", "sink"
# Elementwise, but not marked so in PyTorch.
ELEMENTWISE = {aten.clone.default, aten._to_copy.default, aten.copy.default}
NEVER = float("inf")


def is_view(node: Node) -> bool:
    """Views are made again, of what they are views of."""
    target: Any = node.target
    overload = node.op == "call_function" and isinstance(target, torch._ops.OpOverload)
    return overload and facts_of(target).behaviour == "view"


def choose(
    order: Sequence[Node],
    read: Iterable[Node],
    free: Collection[Node],
    never: Collection[Node],
    copied: Collection[Node],
) -> set[Node]:
    """The nodes to save.  `order`: those of the forward graph that the backward graph depends on; `read`: those that it
    reads itself; `free`: those that are kept anyway; `never`: those that must not be saved; `copied`: those of which a copy would be."""
    import networkx as nx  # PyTorch needs it, too; slow to import

    network = nx.DiGraph()
    inside = set(order)
    for node in order:
        name = str(node.name)
        if node in never:
            cost = NEVER
        elif node in free:
            cost = 0.0
        else:
            cost = _cost(node) * (2.0 if node in copied else 1.0)
        network.add_edge((name, 0), (name, 1), capacity=cost)
        if not _can_repeat(node):
            network.add_edge(SOURCE, (name, 0))
        for operand in node.all_input_nodes:
            if operand in inside:
                network.add_edge((operand.name, 1), (name, 0))
    for node in read:
        if node in inside:
            network.add_edge((node.name, 1), SINK)
    if SINK not in network or SOURCE not in network:
        return set()
    try:
        _, (before, _) = nx.minimum_cut(
            network, SOURCE, SINK, flow_func=nx.algorithms.flow.boykov_kolmogorov
        )
    except nx.NetworkXUnbounded:
        raise Break("gradient", "what a gradient depends on is changed in place") from None
    return {n for n in order if (n.name, 0) in before and (n.name, 1) not in before}


def _cost(node: Node) -> float:
    """Bytes moved for saving it; infinite where that is impossible."""
    value = node.meta.get("val")
    if node.op == "get_attr" or (is_number(node) and node.op == "placeholder"):
        return 0.0
    if not isinstance(value, torch.Tensor) or is_view(node):
        return NEVER
    return 2.0 * value.numel() * value.dtype.itemsize + 1.0


def _can_repeat(node: Node) -> bool:
    """With the same bits, and next to nothing to pay."""
    if node.op != "call_function":
        return False
    target: Any = node.target
    if is_view(node) or is_number(node):
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False  # a part of several results: as what makes them
    random = torch.Tag.nondeterministic_seeded in target.tags
    return not random and (torch.Tag.pointwise in target.tags or target in ELEMENTWISE)
