"""A captured graph run op by op under autograd, where the compiled halves do not say enough: gradients of gradients, hooks."""

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
# Running statistics are written, and have no influence on the result.
BATCH_NORM = aten._native_batch_norm_legit_functional.default
Node = torch.fx.Node


@dataclass(slots=True)
class Others:
    """What is kept for a call op by op beside what is saved anyway."""

    tensors: Sequence[Any]
    versions: Sequence[int | None]  # None where a change does not count
    random: tuple[tuple[str, Any], ...]  # states of the generators before the call


NOTHING = Others((), (), ())
Plan = Callable[..., tuple[Any, ...]]


class Switch:
    is_on = False


class Between(torch.autograd.Function):
    """Stands between a result and others that are computed from it."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, switch: Switch) -> torch.Tensor:
        context.switch = switch
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context: Any, given: Any) -> Any:
        return None if context.switch.is_on else given, None


class Nothing(torch.autograd.Function):
    """Hands on no gradient, whatever it is given: a pass goes through what is behind it nevertheless."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context: Any, given: Any) -> Any:
        return None


def let_through(tensor: torch.Tensor, switch: Switch) -> torch.Tensor:
    return Between.apply(tensor, switch)  # type: ignore[no-any-return, no-untyped-call]


class DoubleBackwardError(FrameloomError, RuntimeError):
    """A gradient of a gradient was asked for where only the plain program can give it."""


class Refused(torch.autograd.Function):
    """The gradients among `given`, behind `n` tensors that they depend on.  Their own gradient raises: nobody may ask for it."""

    @staticmethod
    def forward(context: Any, why: str, n: int, *given: Any) -> Any:
        context.why = why
        return given[n:]

    @staticmethod
    def backward(context: Any, *given: Any) -> Any:
        raise DoubleBackwardError(context.why)


def followed(values: Iterable[Any]) -> list[torch.Tensor]:
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
        # By its number as an input, behind the call's own those results of the graph that are given, too.  The last of the call's own, of which
        # only sizes are read, may be missing in the graph.
        self._given = {results[k]: self._how.n_inputs - len(slots) + n for n, k in enumerate(slots)}
        places = {**{n: k for k, n in enumerate(inputs)}, **self._given}
        drawing = [n for n in nodes if n.op == "call_function" and draws(n)]
        self._devices = sorted({str(_device(n)) for n in drawing})
        # Where nothing is drawn, what no gradient comes from is left out.
        self._shown = self._how.tangents if not self._devices else range(self._how.n_told)
        shown = [results[k] for k in self._shown]
        self._needed = behind([*shown, *drawing], self._before_it(_operands))
        relied_on = behind([*shown, *drawing], self._before_it(_relied_on_by))
        self.reads = tuple(k for n, k in places.items() if n in self._needed)
        self.numbers = frozenset(k for n, k in places.items() if is_number(n))
        self._places, self._relied_on_for = places, dict[frozenset[int], frozenset[int]]()
        self._relied_on = self._inputs_among(relied_on)
        self._copied = self._relied_on.intersection(captured.mutated)

    def _before_it(self, operands: Callable[[Node], list[Node]]) -> Callable[[Node], list[Node]]:
        """What a node of the graph is computed from; what is given is not."""
        return lambda n: [] if n in self._given else operands(n)

    def _inputs_among(self, nodes: Collection[Node]) -> frozenset[int]:
        return frozenset(k for n, k in self._places.items() if n in nodes) - self.numbers

    def relied_on(self, missing: frozenset[int]) -> frozenset[int]:
        """The inputs whose values have a part in the results to which a pass comes; `missing`: the entries of `Backward.tangents` to which it does not."""
        if len(missing) == len(self._how.tangents):
            return self._relied_on
        if (found := self._relied_on_for.get(missing)) is None:
            results: Any = self._graph.output_node().args[0]
            roots = [results[n] for k, n in enumerate(self._how.tangents) if k not in missing]
            found = self._inputs_among(behind(roots, self._before_it(_relied_on_by)))
            self._relied_on_for[missing] = found
        return found

    def before(self, inputs: Sequence[Any], kept: Sequence[int]) -> Others:
        """What a gradient of a gradient needs, before the call; `kept`: the inputs among it that are not saved."""
        if not kept and not self._devices:
            return NOTHING
        tensors, copied = [inputs[k] for k in kept], self._copied
        if copied:
            tensors = [t.clone() if k in copied else t for k, t in zip(kept, tensors, strict=True)]
        relied_on = self._relied_on
        counts = [k in relied_on and not t.is_inference() for k, t in zip(kept, tensors)]  # noqa: B905
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
        """Gradients of the inputs to which passes come, as functions of the inputs and of what is given; None where they do not depend
        on those.  `bare`: results to which the pass comes without a gradient; `whole`: what is given to results is all that comes to them,
        from others, too."""
        how, inputs, switch = self._how, self._apart(inputs), Switch()
        cut = whole and not self._slots
        run = self._between if cut else self._results
        with torch.enable_grad():
            outputs = self._run(run, (*inputs, switch) if cut else inputs, others)
            passed = [(Nothing.apply(outputs[n]), torch.zeros_like(outputs[n])) for n in bare]  # type: ignore[no-untyped-call]
        passed += [(outputs[n], given[n]) for n in how.tangents if given[n] is not None]
        passed = [(result, gradient) for result, gradient in passed if result.requires_grad]
        leaves = {k: inputs[k] for k in how.inputs if inputs[k] is not None}  # those that it reads
        if not passed or not leaves:
            return None
        roots, gradients = zip(*passed, strict=True)
        switch.is_on = True
        try:
            made = torch.autograd.grad(
                roots,
                [*leaves.values()],
                gradients,
                create_graph=create_graph,
                allow_unused=True,
            )
        finally:
            switch.is_on = False
        found = dict(zip(leaves, made, strict=True))
        return [found.get(k) for k in how.inputs]

    def _apart(self, inputs: Sequence[Any]) -> list[Any]:
        """Other tensors with the same history: hooks of the inputs see what the node returns, and nothing twice."""
        own = list(inputs)
        with torch.enable_grad():
            for k in [k for k in self._how.inputs if own[k] is not None]:
                own[k] = aten.alias.default(own[k])
        return own

    def _run(self, run: Plan, inputs: Sequence[Any], others: Others) -> tuple[Any, ...]:
        """The results that `run` gives, with the random numbers of the call."""
        now = [(d, _random_state(d)) for d, _ in others.random]
        _set_random_states(others.random)
        try:
            with torch._C._DisableAutocast():
                results: tuple[Any, ...] = run(*inputs)
        finally:
            _set_random_states(now)
        return results

    def module(self, graph: torch.fx.Graph) -> Callable[..., Any]:
        """A backward graph as a function, which autocast may be around."""
        made: list[Any] = []

        def run(*args: Any) -> Any:
            if not made:
                made.append(function_of(self._captured.constants, _of_recorded_dtypes(graph)))
            return made[0](*args)

        return run

    @cached_property
    def _results(self) -> Plan:
        return self._with_histories()

    @cached_property
    def _between(self) -> Plan:
        """It takes a switch behind the inputs."""
        results: Any = self._graph.output_node().args[0]
        return self._with_histories({results[k] for k in self._how.between})

    def _with_histories(self, between: Collection[Node] = ()) -> Plan:
        """The graph's results; tensors have a history where they had one in the program.  `between`: results from which nothing flows on
        while the switch is on."""
        graph = torch.fx.Graph()
        copies = self._placeholders(graph)
        given = [*copies]
        results: dict[Node, Node] = {}
        switch = graph.placeholder("switch") if between else None
        for node in (*given, *[n for n in self._graph.nodes if n in self._needed]):
            ends = not node.meta.get("grad", True)
            if node not in copies:
                # What has no history saves nothing: it may be computed from what cannot be saved.
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
                copies[node] = graph.call_function(let_through, (copies[node], switch))
        told: Any = self._graph.output_node().args[0]
        own = [results[told[k]] if k in self._shown else None for k in range(self._how.n_told)]
        graph.output(tuple(own))
        return function_of(self._captured.constants, graph)

    def _placeholders(self, graph: torch.fx.Graph) -> dict[Node, Node]:
        """For the call's inputs and for what is given."""
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
    """`graph`, where others read a view that was written to from what was written, as its history says: the graph has them read the value
    that was written, which what was written is then made of."""
    results: Any = graph.output_node().args[0]
    pairs = [(n, results[k]) for n in graph.nodes for k in n.meta.get(READ_AS, ())]
    instead = {n: (r, behind([r], _operands)) for n, r in pairs if n is not r}
    if not instead:
        return graph
    made = torch.fx.Graph()
    copies: dict[Node, Node] = {}

    def read(user: Node, operand: Node) -> Node:
        result, before = instead.get(operand, (operand, ()))
        return operand if user in before or user.op == "output" else result

    for start in graph.nodes:  # in their order, as some draw
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
                copies[node] = copy_node(made, node, instead_of.__getitem__)
    return made


def _detached(graph: torch.fx.Graph, node: Node, copy: Node) -> Node:
    """Without its history; tensors alone have one."""
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return copy
    return graph.call_function(aten.detach.default, (copy,))


def _with_derivative(graph: torch.fx.Graph, node: Node, copies: dict[Node, Node]) -> Node:
    made = copy_node(graph, node, copies.__getitem__)
    if node.target is aten.copy.default:
        made.target = copied
    return made


def _of_recorded_dtypes(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Autograd gives each gradient the dtype of what it is the gradient of, where autocast has the ops of a backward pass compute in another one."""
    made = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in graph.nodes:
        copies[node] = _with_derivative(made, node, copies)
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor):
            copies[node] = made.call_function(_in_dtype, (copies[node], value.dtype))
    return made


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
