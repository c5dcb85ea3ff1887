"""Runs a call of a graph as several autograd nodes, if some results depend on others, or on other inputs than
the rest (capture/autograd/node_split.py).

Each node computes the gradients of its own inputs from the gradients of all results that depend on them.  If
such a gradient arrives at another node, autograd does not pass it on: the node where it arrives notes it for
the others.  Gradients flow from result to result only if the program may observe them: with a hook, with
`retain_grad`, or in a pass that names the tensors for which it needs gradients.  Then a result's gradient is
complete before it is passed on.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from frameloom.autograd.gradients import (
    Compiled,
    Gradients,
    differentiate,
    keeps_graph,
    may_checkpoint,
    node_functions,
)
from frameloom.autograd.op_by_op import Others
from frameloom.autograd.result_hooks import Hooks, give_own_node
from frameloom.autograd.saved_tensors import release_saved
from frameloom.autograd.view_outputs import NOTHING, OutputBuilder, early_views
from frameloom.capture.autograd.node_split import Window, Windows
from frameloom.capture.shapes.iteration import is_dense

present_pass = torch._C._current_graph_task_id
queue_callback = torch.autograd.Variable._execution_engine.queue_callback
# The most unfinished passes that are remembered: one may run in a hook of another, or a pass has failed.
MOST_PASSES = 2


class Parts:
    """The nodes of a graph.  `whole` has the forward plan, which runs once per call."""

    def __init__(self, whole: Gradients, windows: Windows, nodes: Sequence[Window]) -> None:
        self._whole = whole
        place = {id(w): n for n, w in enumerate(nodes)}
        self._parts = [Part(whole, windows, w, nodes, place) for w in nodes]
        linked = {n for part in self._parts for n in part.beyond}
        for n, part in enumerate(self._parts):
            part.is_linked = n in linked
            part.only_entry = part.entry if len(part.entry) == 1 and not part.is_linked else ()
        self._between = whole.how.between
        # Per result: how many nodes read its gradient to compute gradients of inputs (`_readers`).
        ends = (part.how.tangents for part in self._parts if not part.is_gate)
        # The results whose nodes are not ours.
        several = (part.entry for part in self._parts if len(part.entry) > 1)
        self._others_nodes = {*whole.how.view_results, *itertools.chain(*several)}
        self._readers = Counter(itertools.chain(*ends))

    def __call__(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        others_by_part = [part.op_by_op.before(inputs, part.early) for part in self._parts]
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # as no_grad(), in a tenth of the time
        try:
            forward_results = self._whole.forward(*inputs)
        finally:
            torch._C._set_grad_enabled(before)
        whole = self._whole
        how, call = whole.how, Call(self._readers)
        count, views, apart = how.n_needed, how.view_results, self._others_nodes
        results: list[Any] = [None if k in views else forward_results[k] for k in range(count)]
        early = early_views(how, inputs, whole.views_vary) if whole.makes_early else NOTHING
        outputs = OutputBuilder(how, inputs, results, whole.views_vary, early)
        links: list[Any] = []
        for part, others in zip(self._parts, others_by_part, strict=True):
            ends: Sequence[Any]
            if part.is_gate:
                ends = [outputs.result(n) for n in part.slots]
            else:
                ends = part.wanted(inputs)
            if part.of_results:
                others = part.with_results(others, ends)
            beyond = [links[n] for n in part.beyond] or part.anchor
            own = (
                inputs,
                part.seen(forward_results) if part.hidden else forward_results,
                others,
                call,
            )
            shown = apply(part, own, *ends, *beyond)
            links.append(shown[-1] if part.is_linked else None)
            for n, result in zip(part.entry, shown, strict=False):
                results[n] = result
                if n in apart:
                    give_own_node(result)
        call.watch([(outputs.result(n), n in apart) for n in self._between])
        return outputs.outputs()


class Part(Gradients):
    """One of several nodes; it gets the results of the forward plan."""

    is_linked = False

    def __init__(
        self, whole: Gradients, windows: Windows, window: Window, nodes: Sequence[Window], place: dict[int, int]
    ) -> None:  # fmt: skip
        # Results by their numbers, and parts (`beyond`) by theirs.
        tangents = whole.how.tangents
        self.entry, self.slots = ([tangents[k] for k in ks] for ks in (window.entry, window.slots))
        self.beyond = [place[id(w)] for w in window.beyond]
        self.is_gate = window.is_gate
        self._from = {tangents[k] for k in window.label} - {*self.entry}
        how = windows.backward(window, nodes)
        super().__init__(whole.forward, whole.compile, replace(whole.captured, backward=how))
        saved = [*how.saved_outputs, *(n.number for n in how.checks.noticed if not n.of_input)]
        led_to = {*self.entry, *self.slots}
        self.hidden = {k for k in saved if k < how.n_needed and k not in led_to}
        count = how.n_inputs - len(self.slots)
        self.early = [k for k in self.others if k < count]
        self.of_results = [k - count for k in self.others[len(self.early) :]]
        # Whether eager frees something after a pass from the only result, so that nothing has to be
        # remembered.
        self._frees_after_pass = len(self.entry) == 1 and all(how.frees)
        # Without inputs, the node gets a dummy one: in eager, too, some histories lead to no input.
        self.anchor = [torch.empty(0, device="cpu", requires_grad=True)] if not how.inputs else []
        self.no_links = (None,) * (len(self.beyond) or len(self.anchor))

    def _possible_split(self) -> None:
        return None

    def with_results(self, others: Others, slots: Sequence[Any]) -> Others:
        """Adds the results that a gradient of a gradient needs: it continues along their histories."""
        own = [slots[k] for k in self.of_results]
        versions = [t._version for t in own]
        return Others([*others.tensors, *own], [*others.versions, *versions], others.random)

    def seen(self, results: Sequence[Any]) -> Sequence[Any]:
        """Detaches results of other nodes, so that this node does not hold their histories."""
        results = [*results]
        for k in self.hidden:
            if isinstance(results[k], torch.Tensor):
                results[k] = results[k].detach()
        return results

    def run(self, context: Any, inputs: Any) -> tuple[Any, ...]:
        given, results, context.others, context.call = inputs
        self.saving.save(context, given, results)
        shown = [results[k] for k in self.entry]
        if self.is_linked:
            shown.append(torch.empty(0, device=self.how.layouts[0].device))
        return tuple(shown)

    def gate(
        self, context: Any, arriving: Sequence[Any], given: Mapping[int, Any], whole: bool
    ) -> Any:
        """Runs a pass through a gate.  If the program does not observe the gradients (`whole` is false), the
        nodes to which the gate leads compute them."""
        if whole:
            return differentiate(context, arriving, whole)
        for n in self.entry:
            if arriving[n] is not None:
                break
        else:
            passed = next((n for n in given if n in self._from), None)
            if passed is None:
                return self.nothing
            arriving = [*arriving]
            arriving[self.entry[0]] = given[passed]  # it is not read, but eager has a gradient here
        if not self._frees_after_pass or context.retained is not None:
            return differentiate(context, arriving)
        try:
            if self.saving.saves:
                _ = context.saved_tensors  # raises if they were changed or freed
        except RuntimeError:
            return differentiate(context, arriving)
        if not keeps_graph():
            release_saved(context)
        return self.nothing


class Call:
    """The state that the nodes of one call share."""

    def __init__(self, readers: Mapping[int, int]) -> None:
        self._readers = readers
        self.between: Sequence[Any] = ()  # results from which others are computed
        self.hooks: list[Any] = []  # the dictionaries of their hooks
        self._passes: dict[int, Pass] = {}

    def watch(self, between: Sequence[tuple[Any, bool]]) -> None:
        """Starts to observe the hooks of these results.  Results of autograd's own nodes get a dictionary for
        hooks now, so that their hooks are seen as well."""
        self.between = [weakref.ref(result) for result, _ in between]
        for result, has_others_node in between:
            if has_others_node and result._backward_hooks is None:
                result._backward_hooks = Hooks()
                result.grad_fn._register_hook_dict(result)
                self.hooks.append(weakref.ref(result._backward_hooks))

    def _begin(self, number: int) -> Pass:
        while len(self._passes) >= MOST_PASSES:
            del self._passes[next(iter(self._passes))]
        started = self._passes[number] = Pass(self._is_observed())
        if not may_checkpoint():
            # The pass may skip nodes.  Gradients with a history hold the nodes, which hold this object: so
            # end it.
            queue_callback(partial(self._end, number))
        return started

    def _end(self, number: int) -> None:
        self._passes.pop(number, None)

    def backward(self, context: Any, part: Part, arriving: Sequence[Any]) -> Any:
        """Runs a pass through a node.  `arriving`: the gradients that arrive there."""
        number = present_pass()
        present = self._passes.get(number) or self._begin(number)
        given, whole = present.given, present.is_observed
        for n in part.entry:
            if arriving[n] is not None and n in self._readers:
                given[n], present.left[n] = arriving[n], self._readers[n]
        if part.is_gate:
            return part.gate(context, arriving, given, whole)
        gradients: list[Any] = [None] * len(arriving)
        for n in part.how.tangents:
            if n in given:
                gradients[n] = given[n]
                present.left[n] -= 1
                if not present.left[n]:
                    del given[n]
        if not given:
            self._end(number)
            return differentiate(context, gradients, whole)
        return _for_leaves(differentiate(context, gradients, whole), given)

    def _is_observed(self) -> bool:
        """Whether the program can observe the gradients between results."""
        if not self.between:
            return False
        if not may_checkpoint() or (self.hooks and any(hooks() for hooks in self.hooks)):
            return True
        return any([t is not None and t.retains_grad for t in [ref() for ref in self.between]])


def _for_leaves(gradients: Sequence[Any], held: Mapping[int, Any]) -> Sequence[Any]:
    """Returns the gradients, cloned where they are held.  A leaf takes over a gradient that nothing else
    holds, but copies others into its own layout, which is a different one if sizes are 1."""
    return [
        g.clone() if g is not None and 1 in g.shape and _is_held(g, held) and is_dense(g) else g
        for g in gradients
    ]


def _is_held(gradient: Any, held: Mapping[int, Any]) -> bool:
    return any(gradient is g for g in held.values())


class Pass:
    """A backward pass: the gradients of results that have arrived, by number, and how many nodes have yet to
    read each."""

    __slots__ = ("given", "is_observed", "left")

    def __init__(self, is_observed: bool) -> None:
        self.is_observed = is_observed
        self.given: dict[int, Any] = {}
        self.left: dict[int, int] = {}


class Node(Compiled):
    """Takes what the call has made, and the tensors on which it depends: inputs, results of other nodes,
    links."""

    @staticmethod
    def backward(context: Any, *given: Any) -> Any:
        part: Part = context.region
        arriving: list[Any] = [None] * part.how.n_needed
        for n, gradient in zip(part.entry, given, strict=False):
            arriving[n] = gradient
        return *context.call.backward(context, part, arriving), *part.no_links


def register_hooks(node: Any, tensor: Any) -> None:
    """Registers hooks as other nodes do, and notes them for the call."""
    register(node, tensor)
    if node.region.entry[tensor.output_nr] in node.region.how.between:
        node.call.hooks.append(weakref.ref(tensor._backward_hooks))


def noting(register: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method of a node that registers a hook, so that the hook is noted: it observes the gradients of
    the node's results."""

    def noted(node: Any, hook: Callable[..., Any]) -> Any:
        handle = register(node, hook)
        node.call.hooks.append(handle.hooks_dict_ref)
        return handle

    return noted


apply = node_functions(Node)
register = Node._backward_cls._register_hook_dict  # type: ignore[attr-defined]
Node._backward_cls._register_hook_dict = register_hooks  # type: ignore[attr-defined]
for name in ("register_prehook", "register_hook"):
    setattr(Node._backward_cls, name, noting(getattr(Node._backward_cls, name)))
