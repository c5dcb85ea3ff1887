"""Splits the autograd node of a graph whose results lead to different inputs.

A backward pass from a result goes through everything that its history leads to, calls hooks there, and frees
saved tensors, also where no gradient flows. So inputs that the program may inspect get nodes of their own,
and a pass goes through the same ones as in eager. A result that is computed from other results enters at a
node, a *gate*, that leads to theirs, where the gradient between them can be asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch.fx

from frameloom.capture.autograd.gradient_flow import TOTAL, reach
from frameloom.capture.autograd.prune import Partial
from frameloom.capture.recording.captured_graph import Backward, behind

MOST = 8  # most nodes; a backward graph is compiled for each set of inputs
Entries = frozenset[int]  # entries of `Backward.tangents`


@dataclass(eq=False)
class Window:
    """One autograd node. `label`: the results whose passes go through it; `ends`: entries of `inputs` that
    get their gradients here."""

    label: Entries
    ends: tuple[int, ...] = ()
    # of a gate: the results that get gradients from the gate's own results
    slots: tuple[int, ...] = ()
    entry: tuple[int, ...] = ()  # the results that enter here
    given: list[Window] = field(default_factory=list)  # the nodes to which it leads through `slots`
    beyond: list[Window] = field(default_factory=list)  # other nodes to which it leads

    @property
    def is_gate(self) -> bool:
        return not self.ends


class Windows:
    """The possible nodes of a graph."""

    def __init__(self, how: Backward) -> None:
        self._how = how
        nodes = list(how.graph.nodes)
        self._seeds = [n for n in nodes if n.op == "placeholder"][-len(how.tangents) :]
        named = {s.name: k for k, s in enumerate(self._seeds)}
        shown = {k for k, n in enumerate(how.tangents) if n in how.between}
        totals = [(named[t], n) for n in nodes for t in n.meta.get(TOTAL, ())]
        self._totals = {k: n for k, n in totals if k in shown}
        uncut, cut = reach(nodes, self._seeds), self._cut(nodes)
        # Per result that others are computed from: these results and itself; and those whose gradients reach
        # it without another result in between.
        self._from = {k: frozenset(uncut[n]) for k, n in self._totals.items()}
        self._next = {k: frozenset(cut.get(n, ())) - {k} for k, n in self._totals.items()}
        everything = frozenset(range(len(how.tangents)))
        # The entries of `inputs` that some results do not lead to.
        self.partly_reached = tuple(k for k, n in enumerate(how.leading) if n != everything)
        self.apart_anyway = self._computed_apart(uncut)

    @property
    def is_one(self) -> bool:
        return not self.partly_reached and not self._totals

    def _computed_apart(self, flows: Mapping[torch.fx.Node, set[int]]) -> Entries:
        """Returns those of `partly_reached` whose gradients share no step with those of others."""
        if not self.partly_reached:
            return frozenset()
        outputs: Any = self._how.graph.output_node().args[0]
        leading, seeds = self._how.leading, {*self._seeds}
        steps: dict[Entries, set[torch.fx.Node]] = {}
        for label in {*leading}:
            ends = [outputs[k] for k, n in enumerate(leading) if n == label]
            nodes = behind(ends, lambda n: n.all_input_nodes)
            steps[label] = {n for n in nodes if n in flows and n not in seeds}
        shared = Counter(n for own in steps.values() for n in own)
        alone = {label for label, own in steps.items() if all(shared[n] == 1 for n in own)}
        return frozenset(k for k in self.partly_reached if leading[k] in alone)

    def _cut(self, nodes: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, set[int]]:
        return reach(nodes, self._seeds, {n: self._seeds[k] for k, n in self._totals.items()})

    def apart(self, inspected: Collection[int]) -> list[Window]:
        """Returns the nodes, in an order in which a node comes after those that it leads to.
        `inspected`: those of `partly_reached` that the program may inspect in this call."""
        leading, everything = self._how.leading, frozenset(range(len(self._how.tangents)))
        uninspected = tuple(k for k in range(len(leading)) if k not in inspected)
        ends = {
            n: tuple(k for k in inspected if leading[k] == n)
            for n in (leading[k] for k in inspected)
        }
        if uninspected:
            label = frozenset().union(*(leading[k] for k in uninspected))
            ends[label] = (*ends.get(label, ()), *uninspected)
        windows = [Window(label, own) for label, own in ends.items()]
        if len(windows) > MOST:
            windows = [Window(everything, tuple(range(len(leading))))]
        windows.sort(key=lambda w: -len(w.label))
        gates = self._enter(windows)
        for w in windows:
            w.beyond = _least(other for other in windows if other.label > w.label)
        for gate in gates:
            slots, own = set(gate.slots), frozenset(gate.entry)
            gate.given = [w for w in (*windows, *gates) if not slots.isdisjoint(w.entry)]
            reached = behind([gate], lambda w: [*w.given, *w.beyond])
            gate.beyond = _least(w for w in windows if w.label >= own and w not in reached)
        return [*windows, *gates]

    def _enter(self, windows: Sequence[Window]) -> list[Window]:
        """Decides where the results enter, and returns the gates that this takes."""
        gates: dict[object, Window] = {}
        for k in range(len(self._how.tangents)):  # after those that they are computed from
            if self._how.tangents[k] in self._how.view_results:
                continue  # it enters with the tensor that it is a view of
            through = [n for n, w in enumerate(windows) if k in w.label]
            slots = tuple(t for t, own in self._next.items() if k in own)
            least = min((windows[n] for n in through), key=lambda w: len(w.label), default=None)
            if (
                least is not None
                and not slots
                and all(least.label <= windows[n].label for n in through)
            ):
                least.entry = (*least.entry, k)
                continue
            key = k if k in self._totals else (*through, slots)
            gate = gates.setdefault(key, Window(frozenset(), slots=slots))
            gate.entry = (*gate.entry, k)
            gate.label |= self._from.get(k, frozenset({k}))
        return [*gates.values()]

    def backward(self, window: Window, windows: Sequence[Window]) -> Backward:
        """Returns the part of the graph's backward for one node; a gate has the results of its slots as
        additional inputs."""
        how, everything = self._how, frozenset(range(len(self._how.tangents)))
        outputs: Any = how.graph.output_node().args[0]
        kept = sorted(window.entry if window.is_gate else window.label)
        missing = everything.difference(kept)
        if window.is_gate:
            wanted = [self._totals[k] for k in window.slots]
            inputs = [how.n_inputs + n for n in range(len(wanted))]
        else:
            wanted = [outputs[k] for k in window.ends]
            inputs = [how.inputs[k] for k in window.ends]
        # Where saved tensors give sizes, positions matter.
        part = Partial(how, missing, window.is_gate, wanted, only_read=not how.sizes)
        count = len(how.saved_inputs)
        saved = range(count + len(how.saved_outputs)) if how.sizes else part.reads
        place = {k: n for n, k in enumerate(kept)}

        def among(entries: Entries) -> Entries:
            return frozenset(place[k] for k in entries if k in place)

        noticed = ((n, among(n.tangents.intersection(window.entry))) for n in how.checks.noticed)
        saving = (s for s in how.saving if _is_saved_by(window, s, windows))
        return replace(
            how,
            build=lambda: part.graph,
            saved_inputs=tuple(how.saved_inputs[k] for k in saved if k < count),
            saved_outputs=tuple(how.saved_outputs[k - count] for k in saved if k >= count),
            tangents=tuple(how.tangents[k] for k in kept),
            layouts=tuple(how.layouts[k] for k in kept),
            inputs=tuple(inputs[k] for k in part.ends),
            n_inputs=how.n_inputs + len(window.slots),
            saving=tuple(map(among, saving)),
            checks=replace(
                how.checks,
                noticed=tuple(replace(n, tangents=own) for n, own in noticed if own),
            ),
        )  # fmt: skip


def _is_saved_by(window: Window, label: Entries, windows: Sequence[Window]) -> bool:
    """Whether a pass through it goes through those nodes of eager to which exactly these results lead."""
    if window.is_gate:
        return label <= window.label
    least = _least(w for w in windows if not w.is_gate and w.label >= label)
    return window in least[:1]


def _least(windows: Iterable[Window]) -> list[Window]:
    """Returns the windows whose label contains no other window's label."""
    least: list[Window] = []
    for w in sorted(windows, key=lambda w: len(w.label)):
        if not any(w.label > f.label for f in least):
            least.append(w)
    return least
