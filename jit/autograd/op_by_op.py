"""Runs a captured graph op by op under autograd, where the compiled halves are not enough: gradients of
gradients, hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.fx

from frameloom.capture.autograd.custom_function import copied
from frameloom.capture.recording.captured_graph import (
    READ_AS,
    CapturedGraph,
    behind,
    copy_node,
    function_of,
)
from frameloom.capture.tensors.schema import draws
from frameloom.errors import FrameloomError
from frameloom.ir.numbers import is_number

aten = torch.ops.aten
# It writes running statistics, and its result does not depend on them.
BATCH_NORM = aten._native_batch_norm_legit_functional.default
Node = torch.fx.Node


@dataclass(slots=True)
class Others:
    """What is kept for an op-by-op run in addition to the saved tensors."""

    tensors: Sequence[Any]
    versions: Sequence[int | None]  # None if a change does not matter
    random: tuple[tuple[str, Any], ...]  # states of the generators before the call


NOTHING = Others((), (), ())
Plan = Callable[..., tuple[Any, ...]]


class Switch:
    is_on = False


class Between(torch.autograd.Function):
    """Separates a result from others that are computed from it: no gradient passes while the switch is on."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, switch: Switch) -> torch.Tensor:
        context.switch = switch
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context: Any, given: Any) -> Any:
        return None if context.switch.is_on else given, None


class Nothing(torch.autograd.Function):
    """Returns no gradient, but a backward pass still visits the nodes before it."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context: Any, given: Any) -> Any:
        return None


def pass_through(tensor: torch.Tensor, switch: Switch) -> torch.Tensor:
    return Between.apply(tensor, switch)  # type: ignore[no-any-return, no-untyped-call]


class DoubleBackwardError(FrameloomError, RuntimeError):
    """A gradient of a gradient was requested that only the plain program can compute."""


class Refused(torch.autograd.Function):
    """Returns the gradients in `given`, which follow `n` tensors on which they depend.  To differentiate them
    raises an error."""

    @staticmethod
    def forward(context: Any, why: str, n: int, *given: Any) -> Any:
        context.why = why
        return given[n:]

    @staticmethod
    def backward(context: Any, *given: Any) -> Any:
        raise DoubleBackwardError(context.why)


def requiring_grad(values: Iterable[Any]) -> list[torch.Tensor]:
    return [t for t in values if isinstance(t, torch.Tensor) and t.requires_grad]


class OpByOp:
    def __init__(self, captured: CapturedGraph, slots: Sequence[int] = ()) -> None:
        assert captured.backward is not None
        self._captured, self._how = captured, captured.backward
        self._slots = slots
        self._graph = _through_results(self._how.with_functions or captured.graph)
        nodes = list(self._graph.nodes)
        results: list[Node] = nodes[-1].args[0]
        inputs = [n for n in nodes if n.op == "placeholder"]
        # Maps each node to its number as an input.  After the inputs of the call come the results that are
        # given as further inputs.  The last inputs of the call may be missing in the graph if only their
        # sizes are read.
        self._given = {results[k]: self._how.n_inputs - len(slots) + n for n, k in enumerate(slots)}
        places = {**{n: k for k, n in enumerate(inputs)}, **self._given}
        drawing = [n for n in nodes if n.op == "call_function" and draws(n)]
        self._devices = sorted({str(_device(n)) for n in drawing})
        # Without random draws, results without a gradient are left out.
        self._shown = self._how.tangents if not self._devices else range(self._how.n_needed)
        shown = [results[k] for k in self._shown]
        self._needed = behind([*shown, *drawing], self._before_it(_operands))
        relied_on = behind([*shown, *drawing], self._before_it(_relied_on_by))
        self.reads = tuple(k for n, k in places.items() if n in self._needed)
        self.numbers = frozenset(k for n, k in places.items() if is_number(n))
        self._places, self._relied_on_for = places, dict[frozenset[int], frozenset[int]]()
        self._relied_on = self._inputs_among(relied_on)
        self._copied = self._relied_on.intersection(captured.mutated)

    def _before_it(self, operands: Callable[[Node], list[Node]]) -> Callable[[Node], list[Node]]:
        """Returns a function from a node to its operands; results that are given as inputs have none."""
        return lambda n: [] if n in self._given else operands(n)

    def _inputs_among(self, nodes: Collection[Node]) -> frozenset[int]:
        return frozenset(k for n, k in self._places.items() if n in nodes) - self.numbers

    def relied_on(self, missing: frozenset[int]) -> frozenset[int]:
        """Returns the inputs on whose values the results of a pass depend.  `missing`: the entries of
        `Backward.tangents` that the pass does not reach."""
        if len(missing) == len(self._how.tangents):
            return self._relied_on
        if (inputs := self._relied_on_for.get(missing)) is None:
            results: Any = self._graph.output_node().args[0]
            roots = [results[n] for k, n in enumerate(self._how.tangents) if k not in missing]
            inputs = self._inputs_among(behind(roots, self._before_it(_relied_on_by)))
            self._relied_on_for[missing] = inputs
        return inputs

    def before(self, inputs: Sequence[Any], retained: Sequence[int]) -> Others:
        """Returns what a gradient of a gradient needs; called before the forward pass.  `retained`: the
        inputs to keep, which are not saved otherwise."""
        if not retained and not self._devices:
            return NOTHING
        tensors, copied = [inputs[k] for k in retained], self._copied
        if copied:
            tensors = [
                t.clone() if k in copied else t for k, t in zip(retained, tensors, strict=True)
            ]
        relied_on = self._relied_on
        counts = [k in relied_on and not t.is_inference() for k, t in zip(retained, tensors)]  # noqa: B905
        versions = [t._version if c else None for c, t in zip(counts, tensors)]  # noqa: B905
        random = tuple((d, _random_state(d)) for d in self._devices) if self._devices else ()
        return Others(tensors, versions, random)

    def gradients(
        self,
        inputs: Sequence[Any],
        others: Others,
        given: Sequence[Any],
        bare: Sequence[int],
        create_graph: bool,
        whole: bool,
    ) -> list[Any] | None:
        """Returns gradients of `Backward.inputs`, as functions of the inputs and of the given gradients; None
        if they do not depend on these.  `bare`: results that the pass reaches without a gradient; `whole`:
        whether the given gradients are complete sums, with contributions from other results."""
        how, inputs, switch = self._how, self._apart(inputs), Switch()
        cut = whole and not self._slots
        run = self._between if cut else self._results
        with torch.enable_grad():
            outputs = self._run(run, (*inputs, switch) if cut else inputs, others)
            passed = [(Nothing.apply(outputs[n]), torch.zeros_like(outputs[n])) for n in bare]  # type: ignore[no-untyped-call]
        passed += [(outputs[n], given[n]) for n in how.tangents if given[n] is not None]
        passed = [(result, gradient) for result, gradient in passed if result.requires_grad]
        leaves = {k: inputs[k] for k in how.inputs if inputs[k] is not None}  # inputs that it reads
        if not passed or not leaves:
            return None
        roots, gradients = zip(*passed, strict=True)
        switch.is_on = True
        try:
            input_gradients = torch.autograd.grad(
                roots,
                [*leaves.values()],
                gradients,
                create_graph=create_graph,
                allow_unused=True,
            )
        finally:
            switch.is_on = False
        gradient_of = dict(zip(leaves, input_gradients, strict=True))
        return [gradient_of.get(k) for k in how.inputs]

    def _apart(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns aliases of the inputs with the same history: so hooks of the inputs see only what the node
        returns, and see it once."""
        own = list(inputs)
        with torch.enable_grad():
            for k in [k for k in self._how.inputs if own[k] is not None]:
                own[k] = aten.alias.default(own[k])
        return own

    def _run(self, run: Plan, inputs: Sequence[Any], others: Others) -> tuple[Any, ...]:
        """Returns the results of `run`, with the random numbers of the forward call."""
        now = [(d, _random_state(d)) for d, _ in others.random]
        _set_random_states(others.random)
        try:
            with torch._C._DisableAutocast():
                results: tuple[Any, ...] = run(*inputs)
        finally:
            _set_random_states(now)
        return results

    def module(self, graph: torch.fx.Graph) -> Callable[..., Any]:
        """Returns a backward graph as a function that may run under autocast."""
        compiled: list[Any] = []

        def run(*args: Any) -> Any:
            if not compiled:
                compiled.append(function_of(self._captured.constants, _cast_to_recorded(graph)))
            return compiled[0](*args)

        return run

    @cached_property
    def _results(self) -> Plan:
        return self._with_histories()

    @cached_property
    def _between(self) -> Plan:
        """The graph as a function of the inputs and a switch; see `Between`."""
        results: Any = self._graph.output_node().args[0]
        return self._with_histories({results[k] for k in self._how.between})

    def _with_histories(self, between: Collection[Node] = ()) -> Plan:
        """Returns a function that computes the graph's results; tensors have a history where they have one in
        the program.  `between`: results through which no gradient passes while the switch is on."""
        graph = torch.fx.Graph()
        copies = self._placeholders(graph)
        given = [*copies]
        results: dict[Node, Node] = {}
        switch = graph.placeholder("switch") if between else None
        for node in (*given, *[n for n in self._graph.nodes if n in self._needed]):
            ends = not node.meta.get("grad", True)
            if node not in copies:
                # A node without history must save nothing: its operands may be tensors that cannot be saved.
                read = (
                    {n: _detached(graph, n, copies[n]) for n in node.all_input_nodes}
                    if ends
                    else copies
                )
                copies[node] = _with_derivative(graph, node, read)
            elif node in results:
                continue
            if ends:
                copies[node] = _detached(graph, node, copies[node])
            results[node] = copies[node]
            if node in between:
                copies[node] = graph.call_function(pass_through, (copies[node], switch))
        returned: Any = self._graph.output_node().args[0]
        own = [
            results[returned[k]] if k in self._shown else None for k in range(self._how.n_needed)
        ]
        graph.output(tuple(own))
        return function_of(self._captured.constants, graph)

    def _placeholders(self, graph: torch.fx.Graph) -> dict[Node, Node]:
        """Makes placeholders for the inputs of the call and for the results that are given."""
        copies: dict[Node, Node] = {}
        for node in self._graph.find_nodes(op="placeholder"):
            copies[node] = copy_node(graph, node, copies.__getitem__)
        for _ in range(len(copies), self._how.n_inputs - len(self._slots)):
            graph.placeholder("unread")
        results: Any = self._graph.output_node().args[0]
        for k in self._slots:
            node = results[k]
            copies[node] = graph.placeholder(node.name)
            copies[node].meta.update(node.meta)
        return copies


def _through_results(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Returns `graph` in which readers of a view that was written to read this view, as their history says.
    In `graph` they read the value that was written, and the view is computed from this value."""
    results: Any = graph.output_node().args[0]
    pairs = [(n, results[k]) for n in graph.nodes for k in n.meta.get(READ_AS, ())]
    instead = {n: (r, behind([r], _operands)) for n, r in pairs if n is not r}
    if not instead:
        return graph
    rewritten = torch.fx.Graph()
    copies: dict[Node, Node] = {}

    def read(user: Node, operand: Node) -> Node:
        result, before = instead.get(operand, (operand, ()))
        return operand if user in before or user.op == "output" else result

    for start in graph.nodes:  # in their order, because some draw random numbers
        stack = [start]
        while stack:
            node = stack[-1]
            missing = [m for n in node.all_input_nodes if (m := read(node, n)) not in copies]
            if missing and node not in copies:
                stack += reversed(missing)
                continue
            stack.pop()
            if node not in copies:
                instead_of = {n: copies[read(node, n)] for n in node.all_input_nodes}
                copies[node] = copy_node(rewritten, node, instead_of.__getitem__)
    return rewritten


def _detached(graph: torch.fx.Graph, node: Node, copy: Node) -> Node:
    """Returns the value without its history; only tensors have one."""
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return copy
    return graph.call_function(aten.detach.default, (copy,))


def _with_derivative(graph: torch.fx.Graph, node: Node, copies: dict[Node, Node]) -> Node:
    copy = copy_node(graph, node, copies.__getitem__)
    if node.target is aten.copy.default:
        copy.target = copied
    return copy


def _cast_to_recorded(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Returns the graph with casts to the recorded dtypes: under autocast, ops of a backward pass may compute
    in another dtype, and autograd casts each gradient to the dtype of its tensor."""
    cast_graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in graph.nodes:
        copies[node] = _with_derivative(cast_graph, node, copies)
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor):
            copies[node] = cast_graph.call_function(_in_dtype, (copies[node], value.dtype))
    return cast_graph


def _in_dtype(tensor: Any, dtype: torch.dtype) -> Any:
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def _operands(node: Node) -> list[Node]:
    return node.all_input_nodes


def _relied_on_by(node: Node) -> list[Node]:
    statistics = node.args[3:5] if node.target is BATCH_NORM else ()
    return [n for n in node.all_input_nodes if n not in statistics]


def _device(node: Node) -> torch.device:
    value = node.meta.get("val")
    first: Any = value[0] if isinstance(value, tuple | list) else value
    return first.device  # type: ignore[no-any-return]


def _random_state(device: str) -> Any:
    return torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state(device)


def _set_random_states(states: Sequence[tuple[str, Any]]) -> None:
    for device, state in states:
        if device == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)
