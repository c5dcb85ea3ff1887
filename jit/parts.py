"""A call of a graph as several nodes of autograd's, where some results lead to others, or to other inputs than the rest (capture/windows.py).

Each node computes the gradients of its own inputs from those of all results that lead there.  These it does not get from autograd, where they come in at
other nodes: what a pass gives is noted by the node where it comes in.  Between results, gradients flow only where somebody may look at them: a
hook, `retain_grad`, or whoever names tensors for which gradients are wanted.  Then what comes to a result is all that it passes on.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from frameloom.capture.windows import Window, Windows
from frameloom.gradients import Gradients, differentiate, may_checkpoint, node_functions
from frameloom.op_by_op import Others

present_pass = torch._C._current_graph_task_id
# That are not at their end: one in another's hook; or they were not to go everywhere.
MOST_PASSES = 2


class Parts:
    """`whole` has the forward plan, which runs once."""

    def __init__(self, whole: Gradients, windows: Windows, told: Sequence[int]) -> None:
        nodes = windows.apart(told)
        self._whole = whole
        place = {id(w): n for n, w in enumerate(nodes)}
        self._parts = [Part(whole, windows, w, nodes, place) for w in nodes]
        linked = {n for part in self._parts for n in part.beyond}
        for n, part in enumerate(self._parts):
            part.is_linked = n in linked
        self._between = whole.how.between
        # Of the gradient of a result, by its number: how many nodes read it.
        self._readers = Counter(n for part in self._parts for n in part.how.tangents)

    def __call__(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        kept = [part.op_by_op.before(inputs, part.early) for part in self._parts]
        with torch.no_grad():
            made = self._whole.forward(*inputs)
        told, call = self._whole.how.n_told, Call(self._readers)
        results: list[Any] = [*made[:told]]
        links: list[Any] = []
        for part, others in zip(self._parts, kept, strict=True):
            given = (*inputs, *[results[n] for n in part.slots])
            beyond = [links[n] for n in part.beyond] or part.anchor
            own = inputs, part.seen(made), part.keep(others, given), call
            shown = apply(part, own, *part.wanted(given), *beyond)
            for n in part.entry:
                results[n] = shown[n]
            links.append(shown[told] if part.is_linked else None)
        call.between = [weakref.ref(results[n]) for n in self._between]
        return tuple(results)


class Part(Gradients):
    """Its node is given what the forward plan has made."""

    is_linked = False

    def __init__(
        self, whole: Gradients, windows: Windows, window: Window, nodes: Sequence[Window], place: dict[int, int]
    ) -> None:  # fmt: skip
        # All by their numbers as results, or as parts.
        tangents = whole.how.tangents
        self.entry, self.slots = ([tangents[k] for k in ks] for ks in (window.entry, window.slots))
        self.beyond = [place[id(w)] for w in window.beyond]
        self.is_gate = window.is_gate
        self._from = {tangents[k] for k in window.label} - {*self.entry}
        how = windows.backward(window, nodes)
        super().__init__(whole.forward, whole.compile, replace(whole.captured, backward=how))
        self._hidden = [k for k in how.saved_outputs if k < how.n_told and k not in self.entry]
        self.early = [k for k in self.others if k < how.n_inputs - len(self.slots)]
        self._of_results = self.others[len(self.early) :]
        # In eager, too, there are histories that lead nowhere.
        self.anchor = [torch.empty(0, requires_grad=True)] if not how.inputs else []
        self.no_links = (None,) * (len(self.beyond) or len(self.anchor))

    def _apart_at_most(self) -> None:
        return None

    def passed(self, given: Mapping[int, Any]) -> int | None:
        """A result that has a gradient, of which eager would have sent some here."""
        return next((n for n in given if n in self._from), None)

    def keep(self, others: Others, given: Sequence[Any]) -> Others:
        """For a gradient of a gradient, which goes on where the program's results do."""
        if not self._of_results:
            return others
        own = [given[k] for k in self._of_results]
        versions = [t._version for t in own]
        return Others([*others.tensors, *own], [*others.versions, *versions], others.random)

    def seen(self, made: Sequence[Any]) -> Sequence[Any]:
        """Another one's results are not to be held with their history."""
        if not self._hidden:
            return made
        made = [*made]
        for k in self._hidden:
            if isinstance(made[k], torch.Tensor):
                made[k] = made[k].detach()
        return made

    def run(self, context: Any, inputs: Any) -> tuple[Any, ...]:
        given, made, context.others, context.call = inputs
        self.save(context, given, made)
        shown = [made[k] if k in self.entry else None for k in range(self.how.n_told)]
        if self.is_linked:
            shown.append(torch.empty(0, device=self.how.layouts[0].device))
        return tuple(shown)


class Call:
    """What the nodes of one call share."""

    def __init__(self, readers: Mapping[int, int]) -> None:
        self._readers = readers
        self.between: Sequence[Any] = ()  # results from which others are computed
        self.hooks: list[Any] = []  # of these
        self._passes: dict[int, Pass] = {}

    def _present(self) -> Pass:
        number = present_pass()
        found = self._passes.get(number)
        if found is None:
            while len(self._passes) >= MOST_PASSES:
                del self._passes[next(iter(self._passes))]
            found = self._passes[number] = Pass(self._is_looked_at())
        return found

    def take(self, part: Part, come: Sequence[Any]) -> tuple[list[Any], bool]:
        """In a pass: the gradients of all results for a node to which these come, and whether they are whole."""
        present = self._present()
        given, left = present.given, present.left
        for n in part.entry:
            if come[n] is not None:
                given[n], left[n] = come[n], self._readers[n]
        found = [given.get(n) for n in range(part.how.n_told)]
        if part.is_gate and not present.is_looked_at and (passed := part.passed(given)) is not None:
            found[part.entry[0]] = given[passed]  # nobody reads it, but in eager something comes
        for n in part.how.tangents:
            if n in left:
                left[n] -= 1
                if not left[n]:
                    del given[n], left[n]
        if not given:
            del self._passes[present_pass()]
        return found, present.is_looked_at

    def _is_looked_at(self) -> bool:
        """Whether anybody may see what flows between the results."""
        if not self.between:
            return False
        if not may_checkpoint() or any(hooks() for hooks in self.hooks):
            return True
        return any(t is not None and t.retains_grad for t in (ref() for ref in self.between))


class Pass:
    """A backward pass: the gradients of results that have come, by number, and how many nodes are still to read each."""

    __slots__ = ("given", "is_looked_at", "left")

    def __init__(self, is_looked_at: bool) -> None:
        self.is_looked_at = is_looked_at
        self.given: dict[int, Any] = {}
        self.left: dict[int, int] = {}


class Node(torch.autograd.Function):
    """Takes what the call has made, and to what it leads: its inputs, results of others, links."""

    @staticmethod
    def forward(context: Any, part: Part, made: Any, *ends: Any) -> Any:
        context.piece, context.rest, context.changed = part, None, ()
        context.set_materialize_grads(False)
        return part.run(context, made)

    @staticmethod
    def backward(context: Any, *given: Any) -> Any:
        part: Part = context.piece
        everything, whole = context.call.take(part, given)
        return *differentiate(context, everything, whole), *part.no_links


def register_hooks(node: Any, tensor: Any) -> None:
    """As of other nodes, and noted."""
    register(node, tensor)
    if tensor.output_nr in node.piece.how.between:
        node.call.hooks.append(weakref.ref(tensor._backward_hooks))


apply = node_functions(Node)
register = Node._backward_cls._register_hook_dict  # type: ignore[attr-defined]
Node._backward_cls._register_hook_dict = register_hooks  # type: ignore[attr-defined]
