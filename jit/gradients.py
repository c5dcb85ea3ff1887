"""Compiled graphs under autograd: a forward and a backward plan as one node of the program's autograd graph.

`Gradients` is called like the plan of a graph that needs none, and returns the program's outputs, which have a history.
What the backward plan reads is saved as PyTorch's own functions save it: inputs and outputs changed in between are noticed,
memory goes with the graph, hooks for saved tensors are asked.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.fx

from frameloom.capture.graph import CapturedGraph, without_examples
from frameloom.errors import FrameloomError

Plan = Callable[..., tuple[Any, ...]]
BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default


class DoubleBackwardError(FrameloomError, RuntimeError):
    """A gradient of a gradient was asked for where only the plain program can give it."""


class Gradients:
    """`forward` and `backward` are plans; `captured`, whose `backward` says what lies between them, is what they were made
    from."""

    def __init__(self, forward: Plan, backward: Plan, captured: CapturedGraph) -> None:
        assert captured.backward is not None
        self.forward, self.backward, self.how = forward, backward, captured.backward
        self.mutated = captured.mutated
        self._captured = without_examples(captured)
        self._constant = [k for k in range(self.how.n_outputs) if k not in self.how.tangents]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return _Node.apply(self, *inputs)  # type: ignore[no-any-return, no-untyped-call]

    def run(self, context: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        how = self.how
        results = self.forward(*inputs)
        context.save_for_backward(
            *[inputs[k] for k in how.saved_inputs], *[results[k] for k in how.saved_outputs]
        )
        if self._constant:
            context.mark_non_differentiable(*[results[k] for k in self._constant])
        return results[: how.n_outputs]

    def gradients(self, saved: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """A gradient per input of the graph: None where eager has none."""
        how = self.how
        missing = {k for k, n in enumerate(how.tangents) if given[n] is None}
        results: list[Any] = [None] * how.n_inputs
        if len(missing) == len(how.tangents):
            return results
        tangents = [
            layout.fit(given[n]) for n, layout in zip(how.tangents, how.layouts, strict=True)
        ]
        made = self.backward(*saved, *tangents)
        for k, needs, gradient in zip(how.inputs, how.needs, made, strict=True):
            if not needs <= missing:
                results[k] = gradient
        return results

    def with_history(self, inputs: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """The same as functions of the inputs and of what is given, for gradients of gradients: op by op, by autograd."""
        how = self.how
        outputs = self._op_by_op(*inputs)
        roots = [n for n in how.tangents if given[n] is not None]
        leaves = [inputs[k] for k in how.inputs]
        made = torch.autograd.grad(
            [outputs[n] for n in roots], leaves, [given[n] for n in roots],
            create_graph=True, allow_unused=True,
        )  # fmt: skip
        results: list[Any] = [None] * how.n_inputs
        for k, gradient in zip(how.inputs, made, strict=True):
            results[k] = gradient
        return results

    @cached_property
    def _op_by_op(self) -> torch.fx.GraphModule:
        """The program's outputs, without what it writes to its inputs."""
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        if self._depends_on_changed_inputs():
            raise DoubleBackwardError(
                "a gradient of a gradient of compiled code that changes its inputs is not built yet: mark the function "
                "with frameloom.disable"
            )
        for node in self._captured.graph.nodes:
            if node.op == "output":
                graph.output(tuple(copies[n] for n in node.args[0][: self.how.n_outputs]))
            elif node.target is not torch.ops.aten.copy_.default:
                tags = getattr(node.target, "tags", ())
                if torch.Tag.nondeterministic_seeded in tags:
                    raise DoubleBackwardError(
                        f"a gradient of a gradient of compiled code that draws random numbers ({node.target}) is not "
                        "built yet: mark the function with frameloom.disable"
                    )
                copies[node] = graph.node_copy(node, copies.__getitem__)
        return torch.fx.GraphModule(self._captured.constants, graph)

    def _depends_on_changed_inputs(self) -> bool:
        """Whether the program's outputs do; running statistics are written, and have no influence on the result."""
        nodes = list(self._captured.graph.nodes)
        placeholders = [n for n in nodes if n.op == "placeholder"]
        changed = {placeholders[k] for k in self.mutated}
        stack = list(nodes[-1].args[0][: self.how.n_outputs])
        seen = set(stack)
        while stack:
            node = stack.pop()
            statistics = node.args[3:5] if node.target is BATCH_NORM else ()
            for n in node.all_input_nodes:
                if n not in seen and n not in statistics:
                    seen.add(n)
                    stack.append(n)
        return not changed.isdisjoint(seen)


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, piece: Gradients, *inputs: Any) -> Any:
        context.piece = piece
        # Weakly: an input that the backward plan does not read lives no longer than the program wants.
        context.inputs = [(weakref.ref(t), t._version) for t in inputs]
        context.set_materialize_grads(False)
        results = piece.run(context, inputs)
        for k in piece.mutated:
            context.inputs[k] = (context.inputs[k][0], None)
        return results

    @staticmethod
    def backward(context: Any, *given: Any) -> Any:
        piece, saved = context.piece, context.saved_tensors
        if not torch.is_grad_enabled():
            return None, *piece.gradients(saved, given)
        return None, *piece.with_history([_unchanged(*i) for i in context.inputs], given)


def _unchanged(reference: Any, version: int | None) -> Any:
    """The input as it was; `version` is None where its value does not count."""
    tensor = reference()
    if tensor is None:
        raise DoubleBackwardError(
            "a gradient of a gradient needs a tensor that is gone: keep the inputs of the compiled function alive"
        )
    if version is not None and tensor._version != version:
        raise DoubleBackwardError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: an input "
            "of compiled code, which a gradient of a gradient needs"
        )
    return tensor
