"""A call of a graph as several nodes of autograd's, where some results lead to other histories than others (capture/components.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from frameloom.capture.components import component
from frameloom.dependent_outputs import watch
from frameloom.gradients import Gradients, apply


class Parts:
    """`whole` has the forward plan, which runs once."""

    def __init__(self, whole: Gradients, groups: Sequence[frozenset[int]]) -> None:
        self._whole = whole
        self._parts = [
            Part(whole.forward, whole.compile, replace(whole.captured, backward=component(whole.how, own)))
            for own in groups
        ]  # fmt: skip

    def __call__(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        kept = [part.op_by_op.before(inputs, part.others) for part in self._parts]
        with torch.no_grad():
            made = self._whole.forward(*inputs)
        told = self._whole.how.n_told
        results = [*made[:told]]
        for part, others in zip(self._parts, kept, strict=True):
            own = part.how.tangents
            # Another one's results are not to be held with their history.
            seen = [
                t.detach() if k < told and k not in own and isinstance(t, torch.Tensor) else t
                for k, t in enumerate(made)
            ]
            shown = apply(part, (inputs, seen, others), *part.wanted(inputs))
            for n in own:
                results[n] = shown[n]
            if part.depended_on:
                watch(results, part.depended_on)
        return tuple(results)


class Part(Gradients):
    """Its node is given what the forward plan has made."""

    def run(self, context: Any, inputs: Any) -> tuple[Any, ...]:
        given, made, context.others = inputs
        self.save(context, given, made)
        told, own = enumerate(made[: self.how.n_told]), self.how.tangents
        return tuple([t if k in own else None for k, t in told])
