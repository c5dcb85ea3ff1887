"""Decides branches on tensors. On random numbers of the graph, the more likely side is captured.

An example is `if torch.rand([]) < 0.05: skip the layer`. The graph checks that the drawn numbers lead to this
side (speculation/assume.py). If not, the call starts again as plain Python, with the same numbers. The
probability of a side depends on no input, so it is estimated by many trials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.fx

from frameloom.capture.speculation.assume import assume
from frameloom.capture.speculation.branch_speculation import speculated_truth
from frameloom.capture.tensors.constant_folding import ancestors, evaluated, is_fixed
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.tensors.schema import draws, taking_generator
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.values.tensor import TensorValue

TRIALS = 1000
MOST = 256  # numbers of one draw, at most
LEAST = 0.75  # least probability that all predictions of a graph are right


def _predicted_truth(t: Tracer, condition: TensorValue, otherwise: Break) -> bool:
    """Returns the predicted truth of a condition; raises `otherwise` if no side is likely."""
    node = current(condition.fake, t.recorder)  # type: ignore[arg-type]
    taken = t.speculation.choices.get(node)
    if taken is None:
        ones = _trials(t, condition, node)
        if ones is None:
            raise otherwise
        expected = 2 * ones > TRIALS
        chance = t.speculation.chance * max(ones, TRIALS - ones) / TRIALS
        if chance < LEAST:
            raise otherwise
        assume(t, condition, expected, otherwise)
        t.on_undo(lambda before=t.speculation.chance: _take_back(t, node, before))
        t.speculation.chance, t.speculation.choices[node] = chance, expected
        return expected
    return taken


def _take_back(t: Tracer, node: torch.fx.Node, chance: float) -> None:
    t.speculation.chance = chance
    del t.speculation.choices[node]


def _trials(t: Tracer, condition: TensorValue, node: torch.fx.Node) -> int | None:
    """Returns how often the condition was true; None if it cannot be tried."""
    if condition.fake.numel() != 1:
        return None
    order = ancestors(node, _is_free, {}, set())
    if order is None:
        return None
    generator = torch.Generator().manual_seed(0)  # other threads draw from the default one
    outcomes = [evaluated(node, order, {}, t.recorder, generator=generator) for _ in range(TRIALS)]
    return None if any(f is None for f in outcomes) else sum(map(bool, outcomes))


def _is_free(node: torch.fx.Node) -> bool:
    """Whether a node depends on nothing except the CPU's own generator."""
    if not draws(node):
        return is_fixed(node)
    made = node.meta["val"]
    if not isinstance(made, Fake) or made.device.type != "cpu" or made.numel() > MOST:
        return False
    if node.all_input_nodes or node.kwargs.get("generator") is not None:
        return False
    return taking_generator(node.target) is not None


def decide(t: Tracer, condition: TensorValue) -> bool:
    """Returns the truth of a tensor; breaks if it is neither known nor assumed."""
    known = condition.known_truth(t)
    if known is not None:
        return known
    if condition.fake.dtype is torch.uint64:  # PyTorch reads an int64, and refuses larger numbers
        raise Break("data_dependent_branch", "bool(tensor) of uint64")
    speculated = speculated_truth(t, condition)
    if speculated is not None:
        return speculated
    return _predicted_truth(t, condition, Break("data_dependent_branch", "bool(tensor)"))
