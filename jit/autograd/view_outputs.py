"""Makes the program's outputs of a call with a history: results of its nodes, and views of these and of
inputs.  Views are made after the nodes, so that autograd knows their bases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from frameloom.capture.recording.captured_graph import Backward, ViewOutput, ViewStep
from frameloom.capture.symbolic.saved_sizes import at_sizes
from frameloom.ir.symbolic.expr import Symbol

NO_SIZES: Mapping[Symbol, int] = {}
NOTHING: Mapping[int, Any] = {}


def early_views(how: Backward, inputs: Sequence[Any], vary: bool) -> dict[int, Any]:
    """Returns the views that are made before the nodes, by their position among the outputs."""
    builder = OutputBuilder(how, inputs, [], vary)
    outputs = enumerate(how.outputs)
    return {k: builder.view(o) for k, o in outputs if isinstance(o, ViewOutput) and o.early}


class OutputBuilder:
    """The outputs of a call, made from its inputs and the results of its nodes.  `results`: by number; views
    among them are filled in at their first use.  `vary`: whether views depend on symbolic sizes.  `early`:
    outputs that were made before the nodes, by position."""

    def __init__(
        self,
        how: Backward,
        inputs: Sequence[Any],
        results: list[Any],
        vary: bool,
        early: Mapping[int, Any] = NOTHING,
    ) -> None:
        self._how, self._inputs, self._results, self._early = how, inputs, results, early
        self._sizes = how.sizes_of(inputs, results) if vary else NO_SIZES
        # By base and call: the views that one op returns together, and their base.
        self._made: dict[Any, Any] = {}

    def outputs(self) -> tuple[Any, ...]:
        outputs = self._how.outputs
        if self._early:
            return tuple([self._early[k] if k in self._early else self._output(o) for k, o in enumerate(outputs)])  # fmt: skip
        return tuple([self._output(o) for o in outputs])

    def _output(self, output: int | ViewOutput) -> Any:
        return self.result(output) if isinstance(output, int) else self.view(output)

    def result(self, number: int) -> Any:
        result = self._results[number]
        if result is None and number in self._how.view_results:
            result = self._results[number] = self.view(self._how.view_results[number])
        return result

    def view(self, view: ViewOutput) -> Any:
        tensor = self._inputs[view.number] if view.of_input else self.result(view.number)
        for step in view.steps:
            if step.split_index is None:
                tensor = _view(tensor, step, self._sizes)
                continue
            key = id(tensor), id(step.call)
            if key not in self._made:
                self._made[key] = tensor, _view(tensor, step, self._sizes)
            tensor = self._made[key][1][step.split_index]
        return tensor


def _view(tensor: Any, step: ViewStep, sizes: Mapping[Symbol, int]) -> Any:
    args, kwargs = step.args, step.kwargs
    if sizes:
        args, kwargs = at_sizes(args, sizes), at_sizes(kwargs, sizes)
    if step.grad == torch.is_grad_enabled() and not step.inference:
        return step.func(tensor, *args, **kwargs)
    # Autograd notes in which mode a view was made, and names it in the error when it refuses a write.
    with torch.inference_mode() if step.inference else torch.set_grad_enabled(step.grad):
        return step.func(tensor, *args, **kwargs)
