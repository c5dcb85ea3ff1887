"""Gradients that a graph hands on as it is given them, or views of them, as the backward pass of `x + 1` does.

Plans are given gradients as they lay in the recording, and copies where they lie otherwise.  What is only handed on lies as the program's own
gradient does: an expanded one stays that, and autograd looks at it so when it chooses between keeping a gradient and copying it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from frameloom.capture.aten_op import facts_of
from frameloom.capture.graph import Backward
from frameloom.capture.partial import Partial

AS_STRIDED = torch.ops.aten.as_strided.default  # says itself how its result lies
ALIAS = torch.ops.aten.alias.default


@dataclass(frozen=True)
class HandedOn:
    """At `place` of what a pass gives: the gradient of result `number` of the graph, which lay in `strides`, seen by `views`."""

    place: int
    number: int
    strides: tuple[int, ...]
    views: Sequence[torch.fx.Node]

    def of(self, given: Sequence[Any], made: Any) -> Any:
        tensor = given[self.number]
        if tensor.stride() == self.strides:
            return made
        try:
            for view in self.views:
                tensor = view.target(tensor, *view.args[1:], **view.kwargs)  # type: ignore[operator]
        except RuntimeError:  # of memory that lies like that there is no such view: eager copies it
            return made
        return tensor


def handed_on(how: Backward, part: Partial, missing: frozenset[int]) -> tuple[HandedOn, ...]:
    """Those of a pass in which gradients are `missing`."""
    if how.sizes:
        return ()
    first = len(how.saved_inputs) + len(how.saved_outputs)
    places = part.graph.find_nodes(op="placeholder")[first:]
    seeds = {p: k for k, p in enumerate(places) if k not in missing}
    found = []
    for place, node in enumerate(part.graph.output_node().args[0]):  # type: ignore[arg-type]
        views: list[torch.fx.Node] = []
        while _is_view(node):
            if node.target is not ALIAS:
                views.insert(0, node)
            node = node.args[0]
        if node in seeds:
            k = seeds[node]
            found.append(HandedOn(place, how.tangents[k], how.layouts[k].strides, views))
    return tuple(found)


def _is_view(node: Any) -> bool:
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and target is not AS_STRIDED
        and facts_of(target).behaviour == "view"
        and node.all_input_nodes == [node.args[0]]
    )
