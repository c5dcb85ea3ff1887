"""One kind of backward pass through a compiled graph: a plan for the results that have a gradient.  The graph
runs op by op if the plan cannot be used.

In: saved values, and the gradients of the results.  Out: the gradients of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from frameloom.autograd.gradient_arrivals import is_batched, is_watched
from frameloom.capture import _capture
from frameloom.capture.autograd.gradient_layouts import base_of, forwarded_gradients
from frameloom.capture.autograd.prune import Partial
from frameloom.capture.recording.captured_graph import Backward
from frameloom.capture.symbolic.saved_sizes import SavedSize, at_sizes
from frameloom.capture.tensors.schema import is_view
from frameloom.capture.tensors.sized import strides_of
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.conditions import Conditions
from frameloom.ir.symbolic.expr import Size, Symbol

if TYPE_CHECKING:
    from frameloom.autograd.gradients import Gradients

Plan = Callable[..., tuple[Any, ...]]
alias = torch.ops.aten.alias.default  # not `view_as`: it chooses other strides if sizes are 1


class BackwardPass:
    """Computes gradients of the inputs from saved values and from the gradients of the results that have
    one."""

    def __init__(
        self, how: Backward, part: Partial, missing: frozenset[int], module_of: Callable[..., Plan]
    ) -> None:
        self.part, self.missing, self.module = part, missing, module_of(part.graph)
        self._module_of, self._count = module_of, len(how.tangents) - len(missing)
        self.plan: Plan | None = None
        self.consume: Callable[[list[Any]], tuple[Any, ...]] | None = None
        self.conditions: Sequence[Conditions] = ()  # conditions on sizes for the use of the plan
        self.held: Sequence[int] = ()  # the last sizes that met them
        self.saved_sizes = how.sizes
        self._views = _views_of_own_memory(part)

    def __call__(
        self, region: Gradients, values: list[Any], given: list[Any], last: bool
    ) -> Sequence[Any]:
        """Returns a gradient or None per entry of `Backward.inputs`.  `values`: the saved values.  With
        `last`, both lists are emptied, so that memory is freed after its last use."""
        watched = is_watched(region.on_gpu) or torch.is_grad_enabled()
        watched = watched or any([is_batched(gradient) for gradient in given])
        if self.plan is None or watched or (self.conditions and not self._holds(values)):
            gradients = self.module(*self._as_recorded(values), *given)
        else:
            gradients = self._planned(self.plan, values, given, last)
        count = len(region.how.inputs)
        if len(gradients) == count:
            return gradients
        results: list[Any] = [None] * count
        for k, gradient in zip(self.part.ends, gradients, strict=True):
            results[k] = gradient
        return results

    def _planned(
        self, plan: Plan, values: list[Any], given: list[Any], last: bool
    ) -> tuple[Any, ...]:
        saved = len(values)
        try:
            if last and self.consume is not None:
                values += given
                given.clear()
                gradients = self.consume(values)
            else:
                gradients = plan(*values, *given)
        except _capture.RunPlainly:  # the kernels do not support these sizes
            gradients = self.module(*self._as_recorded(values[:saved]), *(given or values[saved:]))
        if self._views:
            gradients = tuple(
                [alias(g) if k in self._views else g for k, g in enumerate(gradients)]
            )
        return gradients

    @cached_property
    def handed(self) -> tuple[tuple[int, ...], Plan]:
        """The entries of `Backward.inputs` whose gradients are views of the given gradients, and a function
        that makes these views."""
        positions, graph = forwarded_gradients(self.part.graph, self._count)
        return tuple(self.part.ends[k] for k in positions), self._module_of(graph)

    def _holds(self, saved: Sequence[Any]) -> bool:
        """Whether the sizes of this call meet the conditions of the plan."""
        given = saved[len(saved) - len(self.saved_sizes) :]
        if given != self.held:
            sizes = sizes_among(self.saved_sizes, saved)
            if not all(c.hold(sizes.__getitem__) for c in self.conditions):
                return False
            self.held = given
        return True

    def _as_recorded(self, saved: Sequence[Any]) -> list[Any]:
        """Returns the saved values with the strides that they have in the recording."""
        places = self.part.graph.find_nodes(op="placeholder")
        sizes = sizes_among(self.saved_sizes, saved)
        values = []
        for node, tensor in zip(places, saved, strict=False):
            if isinstance(tensor, torch.Tensor):
                strides = at_sizes(tuple(node.meta["val"].stride()), sizes)
                if tensor.dim() == len(strides) and tensor.stride() != strides:
                    tensor = tensor.new_empty_strided(tensor.shape, strides).copy_(tensor)
            values.append(tensor)
        return values


def sizes_among(sizes: Sequence[SavedSize], saved: Sequence[Any]) -> dict[Symbol, int]:
    """Returns the values of `sizes`, which are the last of the saved values."""
    given = saved[len(saved) - len(sizes) :]
    return {size.symbol: n for size, n in zip(sizes, given, strict=True)}


def _views_of_own_memory(part: Partial) -> tuple[int, ...]:
    """Returns the positions of gradients that eager returns as views of computed tensors, if the program can
    see that.  Autograd adds a second gradient in place to a tensor that is not a view, so the sum has its
    strides.  To a view it does not, so the strides of the sum depend on both.  They differ in dimensions of
    size 1."""
    places = {*part.graph.find_nodes(op="placeholder")}
    ends: Any = part.graph.output_node().args[0]
    positions = []
    for k, end in enumerate(ends):
        if is_view(end) and base_of(end) not in places:
            like = end.meta["val"]
            may_be_1 = any(isinstance(n, Size) or n == 1 for n in like.shape)
            if may_be_1 and not all(map(same, like.stride(), strides_of(like.shape))):
                positions.append(k)
    return tuple(positions)
