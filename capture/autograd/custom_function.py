"""Autograd Functions of the program (`torch.autograd.Function`) in a recording that autograd follows.

Both the function's `forward` and its `backward` are interpreted at the call
(`library/torch_api/autograd_functions.py`). The nodes of `backward` leave the graph again, as a `Derivative`;
they are recorded again where a backward pass of the recording reaches the call. `Applied` is the node of the
call in the history of the Fakes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.autograd.function import once_differentiable
from torch.fx.node import map_aggregate

from frameloom.capture.autograd.gradient_layouts import PINNED, propagate_layouts, value_of
from frameloom.capture.recording.backward_marks import FUNCTION, note_node
from frameloom.capture.recording.captured_graph import (
    Layout,
    function_of,
    graph_of,
    recorded_behind,
)
from frameloom.capture.recording.static_graph import graph_at_sizes, sizes_in
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.tensors.schema import is_view, stays_unused
from frameloom.errors import Break
from frameloom.ir.symbolic.expr import Symbol

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

Node = torch.fx.Node
aten = torch.ops.aten
# Direct access without the Python code around it: no function transform is active.
APPLY: Any = torch._C._FunctionBase.__dict__["apply"]
transform = torch._C._functorch.peek_interpreter_stack
is_batched = torch._C._functorch.is_legacy_batchedtensor
MOST = 16  # per call, layouts of gradients for which a graph is kept, where a graph runs op by op


@dataclass(eq=False)
class Derivative:
    """A recorded `backward`. `graph` takes what it reads of the recording (`reads`: the nodes there), then
    the gradients of the results that have one, and returns gradients."""

    name: str
    function: str  # the name of the class alone
    graph: torch.fx.Graph
    reads: tuple[Node, ...]
    # of what it reads, with their versions when the function was called
    memories: tuple[tuple[Any, int], ...]
    given: tuple[int, ...]  # results that have a gradient
    layouts: tuple[Layout, ...]  # of these
    made: tuple[int | None, ...]  # per tensor argument: the number of the graph's result
    materializes: bool
    constant: tuple[int, ...]  # results without gradient
    once: bool  # whether its gradients have no gradients
    results: list[Node] = field(default_factory=list)  # nodes at the call
    operands: list[Node] = field(default_factory=list)

    @property
    def fills(self) -> bool:
        """Whether it runs with zeros for missing gradients."""
        return self.materializes and len(self.given) > 1

    def record(self, recorder: Recorder, gradients: Sequence[Any]) -> list[Any]:
        """Records the graph; returns a gradient per tensor argument."""
        if torch.is_grad_enabled():
            raise Break("autograd", f"a gradient of a gradient of {self.name}")
        last = recorder.graph._root.prev
        if any(memory.version != version for memory, version in self.memories):
            raise Break("gradient", f"what {self.name}.backward needs is changed in place")
        given = [gradients[k] for k in self.given]
        resolved = [g.resolve_conj().resolve_neg() for g in given]
        # Layouts of its results depend on those of the gradients.
        layouts = [Layout.of(g) for g in resolved]
        same = all(g.strides == own.strides for g, own in zip(layouts, self.layouts, strict=True))
        graph = self.graph if same else self.graph_for(layouts)
        places = graph.find_nodes(op="placeholder")[len(self.reads) :]
        came, plain = (dict(zip(places, of, strict=True)) for of in (given, resolved))
        copies = dict(zip(graph.nodes, self.reads, strict=False))
        copies.update((p, current(fake, recorder)) for p, fake in plain.items())
        outputs = []
        for node in graph.nodes:
            if node.op == "output":
                # A gradient that is passed on stays as it came, or is a view of the zeros that the function
                # gets for it.
                outputs = [
                    (aten.alias.default(came[n]) if self.fills else came[n])
                    if n in came
                    else _result(n, plain, copies, recorder)
                    for n in node.args[0]
                ]
            elif node.op != "placeholder":
                copies[node] = recorder.graph.node_copy(node, copies.__getitem__)
                recorder.n_ops += 1
        for node in recorded_behind(last):
            note_node(node, FUNCTION)
        return [None if k is None else outputs[k] for k in self.made]

    def graph_for(
        self, layouts: Sequence[Layout], sizes: Mapping[Symbol, int] | None = None
    ) -> torch.fx.Graph:
        """Returns a copy of `graph` for gradients with these layouts; if `sizes` are given, with these sizes
        as constants."""
        if sizes is not None:
            graph = graph_at_sizes(self.graph, sizes)
        else:
            nodes = list(self.graph.nodes)
            inputs = [n for n in nodes if n.op == "placeholder"]
            graph = graph_of(inputs, nodes[len(inputs) : -1], nodes[-1].args[0])
        with torch._C._DisableTorchDispatch():
            propagate_layouts(graph, layouts)
        return graph


def _result(
    node: Node, fakes: dict[Node, Any], copies: dict[Node, Node], recorder: Recorder
) -> Any:
    """Returns a result of the derivative as a recorded tensor."""
    views: list[Any] = []
    base: Any = node
    while is_view(base):
        views.append(base)
        base = base.args[0]
    if base in fakes:
        result = fakes[base]
        for view in reversed(views):
            args, kwargs = map_aggregate((view.args[1:], view.kwargs), value_of)
            result = view.target(result, *args, **kwargs)
            if PINNED in view.meta:
                result.node.meta[PINNED] = True
        return result
    like = node.meta["val"]
    copies[node].meta["val"] = fake = Fake(like.meta, like.device)
    recorder.adopt(fake, copies[node])
    return fake


class Applied(torch.autograd.Function):
    """A call of a Function of the program, on Fakes; `results` are those of its forward."""

    @staticmethod
    def forward(
        context: Any, derivative: Derivative, recorder: Recorder, results: list[Any], saved: list[Any],
        *operands: Any,
    ) -> Any:  # fmt: skip
        context.derivative, context.recorder = derivative, recorder
        context.set_materialize_grads(derivative.materializes)
        context.mark_non_differentiable(*[results[k] for k in derivative.constant])
        # Autograd checks that they are not changed, and not read a second time.
        context.save_for_backward(*saved)
        context.saves = bool(saved)
        return tuple(results)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        if context.saves:
            context.saved_tensors  # noqa: B018
        derivative: Derivative = context.derivative
        if all(gradients[k] is None for k in derivative.given):
            # Autograd calls it nevertheless: it may return gradients, have effects, or fail because saved
            # tensors are freed.
            raise Break("gradient", f"{derivative.name}.backward is given no gradient")
        return None, None, None, None, *derivative.record(context.recorder, gradients)


def attach(
    recorder: Recorder, derivative: Derivative, results: list[Any], saved: list[Any], operands: list[Any]
) -> list[Any]:  # fmt: skip
    """Returns the results with the function's own history."""
    apply = APPLY.__get__(None, Applied)
    derivative.operands = [current(f, recorder) for f in operands]
    outputs = list(apply(derivative, recorder, results, saved, *operands))
    derivative.results = [current(f, recorder) for f in outputs]
    for k, fake in enumerate(outputs):
        fake.by_function = derivative.function, k, len(outputs)
    recorder.history.functions.append(derivative)
    return outputs


def as_made_by(tensor: torch.Tensor, name: str, number: int, count: int) -> Any:
    """Returns a view of a result as such a Function makes it: autograd refuses writes to it, and names the
    Function."""
    return _maker(name, number, count).apply(tensor)[number]  # type: ignore[attr-defined]


@functools.cache
def _maker(name: str, number: int, count: int) -> type:
    def forward(context: Any, tensor: torch.Tensor) -> Any:
        context.set_materialize_grads(False)
        return tuple(
            tensor.view_as(tensor) if k == number else tensor.new_empty(0) for k in range(count)
        )

    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[number]

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (torch.autograd.Function,), methods)


# --- op by op


class Replayed(torch.autograd.Function):
    """The same with real tensors, where a graph runs op by op: its gradients have gradients, too."""

    @staticmethod
    def forward(
        context: Any,
        derivative: Derivative,
        replay: Replay,
        results: tuple[Any, ...],
        n: int,
        *given: Any,
    ) -> Any:
        context.derivative, context.replay = derivative, replay
        context.set_materialize_grads(derivative.materializes)
        context.mark_non_differentiable(*[results[k] for k in derivative.constant])
        own = dict(zip(derivative.results, results, strict=True))
        reads = zip(derivative.reads, given[n:], strict=True)
        context.numbers = {}
        saved = []
        for k, (node, value) in enumerate(reads):
            value = own.get(node, value)
            if isinstance(value, torch.Tensor):
                saved.append(value)
            else:
                context.numbers[k] = value
        context.save_for_backward(*saved)
        return results

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        derivative: Derivative = context.derivative
        tensors = iter(context.saved_tensors)
        count = len(derivative.reads)
        reads = [
            context.numbers[k] if k in context.numbers else next(tensors) for k in range(count)
        ]
        none = [None] * (4 + len(derivative.made) + count)
        if all(gradients[k] is None for k in derivative.given):
            return tuple(none)
        made = context.replay.gradients(reads, [gradients[k] for k in derivative.given])
        for place, k in enumerate(derivative.made):
            none[4 + place] = None if k is None else made[k]
        return tuple(none)


class ReplayedOnce(Replayed):
    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Any) -> Any:
        return Replayed.backward(context, *gradients)


class Replay:
    """A call of a Derivative, as the target of a node."""

    __name__, __module__ = "replay", __name__

    def __init__(self, derivative: Derivative, constants: torch.nn.Module) -> None:
        self.derivative, self._constants = derivative, constants
        self._own = self._function(derivative.graph)
        self._others: dict[Any, Callable[..., Any]] = {}  # by layouts of gradients and sizes

    def gradients(self, reads: Sequence[Any], given: Sequence[Any]) -> Any:
        """Returns the derivative's results, whose layouts depend on those of `given`."""
        layouts = self.derivative.layouts
        if transform() is None and not any(map(is_batched, given)):
            given = [g.resolve_conj().resolve_neg() for g in given]
            if not all(own.is_of(g) for own, g in zip(layouts, given, strict=True)):
                run = self._function_for_layouts(reads, given)
                if run is not None:
                    return run(*reads, *given)
        return self._own(*reads, *[own.fit(g) for own, g in zip(layouts, given, strict=True)])

    def _function_for_layouts(
        self, reads: Sequence[Any], given: Sequence[Any]
    ) -> Callable[..., Any] | None:
        """Returns the function for gradients with these layouts; None if their sizes do not determine all
        sizes of the graph."""
        sizes = sizes_in(self.derivative.graph, [*reads, *given])
        key = tuple(g.stride() for g in given), tuple(sizes.values())
        if key not in self._others:
            if len(self._others) == MOST:
                self._others.clear()
            try:
                with torch.no_grad():
                    graph = self.derivative.graph_for([*map(Layout.of, given)], sizes)
            except KeyError:
                return None
            self._others[key] = self._function(graph)
        return self._others[key]

    def _function(self, graph: torch.fx.Graph) -> Callable[..., Any]:
        return function_of(self._constants, graph, {aten.copy.default: copied})

    def __call__(self, results: Any, operands: Any, reads: Any) -> Any:
        cls = ReplayedOnce if self.derivative.once else Replayed
        # Results that it reads are not passed as arguments: autograd would treat them as arguments that are
        # returned.
        own = self.derivative.results
        pairs = zip(self.derivative.reads, reads, strict=True)
        given = (*operands, *(None if node in own else value for node, value in pairs))
        return cls.apply(self.derivative, self, tuple(results), len(operands), *given)  # type: ignore[no-untyped-call]


def copied(target: Any, source: Any) -> Any:
    """`aten.copy`, which has no derivative."""
    made = torch.empty_strided(
        target.shape, target.stride(), dtype=target.dtype, device=target.device
    )
    return made.copy_(source)


def with_functions(
    nodes: Sequence[Node], recorder: Recorder, ends: Sequence[Node]
) -> torch.fx.Graph:
    """Returns the recorded `nodes` as a graph that calls the program's Functions, and that returns `ends`."""
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    functions: Sequence[Derivative] = recorder.history.functions
    parts = {d: {*d.results, *d.reads, *d.operands} for d in functions}
    missing = {d: len(part) for d, part in parts.items()}
    needed: dict[Node, list[Derivative]] = {}
    for d, part in parts.items():
        for node in part:
            needed.setdefault(node, []).append(d)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        for d in needed.get(node, ()):
            missing[d] -= 1
            if missing[d]:
                continue
            given = tuple(tuple(copies[n] for n in part) for part in (d.results, d.operands, d.reads))  # fmt: skip
            made = graph.call_function(Replay(d, recorder.constants), given)
            for k, result in enumerate(d.results):
                copies[result] = graph.call_function(operator.getitem, (made, k))
                copies[result].meta.update(result.meta)
                copies[result].meta.pop("grad", None)
    graph.output(tuple(copies[n] for n in ends))
    for node in reversed(graph.nodes):
        if not node.users and node.op not in ("placeholder", "output") and not stays_unused(node):
            graph.erase_node(node)
    return graph
