"""Results of one graph whose histories, before the call, are not the same.

Autograd goes from a node to all that the node leads to, and lets go of what is saved there, also where no gradient comes.  Results that depend on
other inputs get nodes of their own, so that a backward pass from one leaves the histories of the others' inputs alone, as in plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from frameloom.capture.graph import Backward
from frameloom.capture.partial import partial_backward

MOST = 8  # a backward graph is compiled for each


class Components:
    """Which of the results of a graph can have a node of their own."""

    def __init__(self, how: Backward, depended_on: Collection[int]) -> None:
        self._how = how
        count = len(how.tangents)
        self._together = [frozenset({k}) for k in range(count)]
        # Where hooks of one result wait for what comes from another, and where eager lets go of the same in passes from two.
        for one in how.needs if depended_on else how.frees:
            self._join(one)
        pairs = enumerate(how.needs)
        some = [c for c in self._together if any(not c.isdisjoint(n) for n in how.needs)]
        # The entries of `inputs` that tell them apart, where these have a history.
        self.telling = tuple(
            k for k, n in pairs if len(some) > 1 and any(c.isdisjoint(n) for c in some)
        )

    def _join(self, entries: frozenset[int]) -> None:
        touched = [c for c in self._together if not c.isdisjoint(entries)]
        if len(touched) > 1:
            rest = [c for c in self._together if c.isdisjoint(entries)]
            self._together = [*rest, frozenset().union(*touched)]

    def apart(self, histories: Collection[int]) -> list[frozenset[int]]:
        """The entries of `tangents` by what they lead to of the inputs (entries of `telling`) that have a history; one of all where nothing
        is gained by more."""
        found: dict[frozenset[int], frozenset[int]] = {}
        for own in self._together:
            led_to = frozenset(k for k in histories if not own.isdisjoint(self._how.needs[k]))
            found[led_to] = own | found.get(led_to, frozenset())
        groups = sorted(found.values(), key=min)
        everything = frozenset(range(len(self._how.tangents)))
        return groups if 1 < len(groups) <= MOST else [everything]


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
