"""Compiled graphs under autograd: a forward and a backward plan as one node of the program's autograd graph.

`Gradients` is called like the plan of a graph that needs none, and returns the program's outputs, which have a history.
What the backward plan reads is saved as PyTorch's own functions save it: inputs and outputs changed in between are noticed,
memory goes with the graph, hooks for saved tensors are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from frameloom.capture.graph import Backward
from frameloom.errors import FrameloomError

Plan = Callable[..., tuple[Any, ...]]


class DoubleBackwardError(FrameloomError, RuntimeError):
    """A gradient of a gradient was asked for, where only the plain program can give it."""


class Gradients:
    """`forward` and `backward` are plans; `how` says what lies between them."""

    def __init__(self, forward: Plan, backward: Plan, how: Backward) -> None:
        self.forward, self.backward, self.how = forward, backward, how
        self._constant = [k for k in range(how.n_outputs) if k not in how.tangents]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return _Node.apply(self, *inputs)  # type: ignore[no-any-return]

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


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, piece: Gradients, *inputs: Any) -> Any:
        context.piece = piece
        context.set_materialize_grads(False)
        return piece.run(context, inputs)

    @staticmethod
    def backward(context: Any, *given: Any) -> Any:
        if torch.is_grad_enabled():
            raise DoubleBackwardError(
                "a gradient of a gradient of compiled code is not built yet; call this function under frameloom.disable"
            )
        return None, *context.piece.gradients(context.saved_tensors, given)
