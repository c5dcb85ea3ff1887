"""What a node of autograd saves for its backward pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import torch

from frameloom.autograd.saved_tensors import noted
from frameloom.capture._capture import tensors_where
from frameloom.capture.recording.captured_graph import Backward


@cache
def nothing() -> torch.Tensor:
    """Returns a tensor that is saved only so that a second pass raises an error.  It is not made at import
    time: the program may import this file in inference mode, or under a mode of its own."""
    return torch.empty(0, device="cpu")


def picker(numbers: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Returns a function that selects these positions of a sequence."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda values: tuple([values[k] for k in numbers])


class Saving:
    """Saves tensors in the context of a node.  `numbers`: positions of inputs that are Python numbers."""

    def __init__(self, how: Backward, numbers: Collection[int]) -> None:
        self.how, checks = how, how.checks
        self._inputs, self._outputs = picker(how.saved_inputs), picker(how.saved_outputs)
        # `saves_marker`: nothing is saved for the backward pass, but eager frees something after it, so that
        # a second pass must raise.  `stays`: some result allows any number of passes.
        saves = bool(how.saved_inputs or how.saved_outputs or checks.noticed)
        self.saves_marker = any(how.frees) and not saves
        self.saves = saves or self.saves_marker
        self.stays = not all(how.frees)
        # Positions of saved inputs that autograd must not save: numbers, and tensors that may be changed.
        apart = checks.unwatched.union(numbers)
        self.apart = tuple(place for place, k in enumerate(how.saved_inputs) if k in apart)
        unwatched = checks.unwatched.difference(numbers)
        self.unwatched = tuple(k for k in how.saved_inputs if k in unwatched)
        pinned = checks.pinned_leaves - apart
        self.pinned_leaves = tuple(p for p, k in enumerate(how.saved_inputs) if k in pinned)
        # Per tensor that autograd saves, in its order: whether it is a result of the node.
        own = (
            *[False] * (len(how.saved_inputs) - len(self.apart)),
            *(k < how.n_needed for k in how.saved_outputs),
            *(not n.of_input and n.number < how.n_needed for n in checks.noticed),
        )
        self.n_saved, self.noted = len(own), noted(own)

    def save(self, context: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Saves what the backward pass needs of the node's inputs and of the graph's results."""
        how = self.how
        saved: Sequence[Any] = self._inputs(inputs)
        if self.pinned_leaves:
            context.where = tensors_where(saved, self.pinned_leaves)
            context.memory = [saved[place].untyped_storage() for place in self.pinned_leaves]
        if self.apart:
            saved = [*saved]
            context.apart = [saved.pop(place) for place in reversed(self.apart)]
            context.versions = [inputs[k]._version for k in self.unwatched]
        if how.sizes:
            context.sizes = [size.read(inputs, results) for size in how.sizes]
        if self.saves_marker:
            context.save_for_backward(nothing())
            return
        saved = *saved, *self._outputs(results)
        if how.checks.noticed:  # saved last
            saved += tuple(
                [(inputs if n.of_input else results)[n.number] for n in how.checks.noticed]
            )
        if self.noted:
            context.noted = [saved[place]._version for place in self.noted]
        context.save_for_backward(*saved)
