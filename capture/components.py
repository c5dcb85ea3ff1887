"""Results of one graph whose gradients have nothing in common.

Autograd goes from a node to all that the node leads to, and lets go of what is saved there, also where no gradient comes.  Results that depend on
other inputs get nodes of their own, so that a backward pass from one leaves the histories of the others' inputs alone, as in plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from frameloom.capture.graph import Backward
from frameloom.capture.partial import partial_backward

MOST = 8  # a backward graph is compiled for each


def components(how: Backward) -> list[frozenset[int]]:
    """The entries of `tangents`, those together that have an input in common; one of all where nothing is gained by more."""
    found: list[frozenset[int]] = []
    for needs in how.needs:
        touched = [c for c in found if not c.isdisjoint(needs)]
        found = [c for c in found if c.isdisjoint(needs)]
        found.append(needs.union(*touched))
    everything = frozenset(range(len(how.tangents)))
    if not 1 < len(found) <= MOST:
        return [everything]
    # What leads nowhere can be anywhere.
    found[0] |= everything.difference(*found)
    return found


def component(how: Backward, own: frozenset[int]) -> Backward:
    """What is left of it for these entries of `tangents`."""
    everything = frozenset(range(len(how.tangents)))
    part = partial_backward(how, everything - own)
    count = len(how.saved_inputs)
    saved: Sequence[int] = range(count + len(how.saved_outputs))
    if not how.sizes:  # else other places count, too
        places = part.graph.find_nodes(op="placeholder")
        for k in saved:
            if k not in part.reads:
                part.graph.erase_node(places[k])
        saved = [k for k in saved if k in part.reads]
    kept = sorted(own)
    place = {k: n for n, k in enumerate(kept)}

    def among(entries: frozenset[int]) -> frozenset[int]:
        return frozenset(place[k] for k in entries if k in place)

    return replace(
        how,
        graph=part.graph,
        saved_inputs=tuple(how.saved_inputs[k] for k in saved if k < count),
        saved_outputs=tuple(how.saved_outputs[k - count] for k in saved if k >= count),
        tangents=tuple(how.tangents[k] for k in kept),
        layouts=tuple(how.layouts[k] for k in kept),
        inputs=tuple(how.inputs[k] for k in part.ends),
        needs=tuple(among(how.needs[k]) for k in part.ends),
        frees=tuple(among(how.frees[k]) for k in kept),
        noticed=tuple(
            replace(n, tangents=among(n.tangents)) for n in how.noticed if among(n.tangents)
        ),
    )
