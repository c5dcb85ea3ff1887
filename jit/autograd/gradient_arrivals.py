"""Chooses the plan of a backward pass by the layouts of the gradients that it gets.

In eager, the layout of an input's gradient follows from the layouts of the results' gradients.  A plan is
compiled for the layouts of the recording.  If gradients have another layout, and the results of the pass
depend on it, a plan is compiled for this layout (capture/autograd/gradient_layouts.py).  If they do not
depend on it, the plan gets copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.autograd.gradient_layouts import relayout
from frameloom.capture.autograd.prune import Partial
from frameloom.capture.recording.captured_graph import Layout
from frameloom.config import config
from frameloom.debug import log

if TYPE_CHECKING:
    from frameloom.autograd.backward_pass import BackwardPass
    from frameloom.autograd.gradients import Gradients

transform = torch._C._functorch.peek_interpreter_stack
is_batched = torch._C._functorch.is_legacy_batchedtensor
dispatch_modes = torch._C._len_torch_dispatch_stack
MOST = 16  # most combinations of layouts that get plans, per set of missing gradients


class SpecializedPass:
    """The pass `run` for gradients with the layouts `actual_layouts`.  `numbers`: the results that have a
    gradient; `expected_layouts`: the layouts that `run` expects."""

    __slots__ = ("_copies", "_each", "_expected", "_numbers", "run")

    def __init__(
        self,
        numbers: Sequence[int],
        actual_layouts: Sequence[Layout],
        expected_layouts: Sequence[Layout],
        run: BackwardPass,
    ) -> None:
        self._numbers, self._expected, self.run = numbers, expected_layouts, run
        self._copies = actual_layouts != expected_layouts
        # Per gradient: its number, its strides (None if sizes are symbolic), its layout, and the layout of
        # the copy (None if no copy is needed).
        self._each = [
            (n, own.strides if own.order is None else None, own, None if own == wanted else wanted)
            for n, own, wanted in zip(numbers, actual_layouts, expected_layouts, strict=True)
        ]

    def run_on(self, given: Sequence[Any]) -> Any:
        """Returns the pass for gradients with these layouts, except for gaps."""
        if (
            not self._copies
            and self.run.handed[0]
            and not all(
                layout.is_of(given[n])
                for n, layout in zip(self._numbers, self._expected, strict=True)
            )
        ):
            return HandingOn(self.run, [given[n] for n in self._numbers])
        return self.run

    def take(self, given: Sequence[Any]) -> list[Any] | None:
        """Returns the gradients in the layouts that the pass expects; None if they do not have the layouts of
        this object."""
        gradients = []
        for n, strides, layout, wanted in self._each:
            tensor = given[n]
            if strides is None:
                strides = layout.strides_at(tensor.shape)
            if tensor.stride() != strides or tensor.is_conj() or tensor.is_neg():
                return None
            gradients.append(tensor if wanted is None else wanted.fit(tensor))
        return gradients

    def fitted(self, given: Sequence[Any]) -> list[Any]:
        """Returns the gradients; those with another layout are copied."""
        return [
            layout.fit(given[n]) for n, layout in zip(self._numbers, self._expected, strict=True)
        ]


class HandingOn:
    """Runs `run`, which gets copies of gradients with gaps if sizes are symbolic.  Results that are given
    gradients, or views of them, are made from the originals instead of the copies, so they keep the
    layout."""

    def __init__(self, run: BackwardPass, given: Sequence[Any]) -> None:
        self._run, self._given = run, given

    def __call__(
        self, region: Any, values: list[Any], taken: list[Any], last: bool
    ) -> Sequence[Any]:
        views: Sequence[Any] = ()
        places, module = self._run.handed
        # With this layout the view may be impossible: then eager makes a copy.
        with suppress(RuntimeError):
            views = module(*values, *self._given)
        gradients = [*self._run(region, values, taken, last)]
        for place, view in zip(places, views, strict=False):
            gradients[place] = view
        return gradients


class Passes:
    """The backward passes of one graph, by the set of missing gradients and the layouts of the others."""

    def __init__(self) -> None:
        self.last: dict[tuple[frozenset[int], bool], SpecializedPass] = {}  # that of the last pass
        self._all: dict[Any, SpecializedPass] = {}

    def find(
        self, region: Gradients, missing: frozenset[int], whole: bool, saved: Sequence[Any], given: Sequence[Any]
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        """Returns the pass, and the gradients in the layouts that it expects.  `missing`: the entries of
        `Backward.tangents` without a gradient; `whole`: whether the other gradients are complete sums."""
        how = region.how
        present = [k for k in range(len(how.tangents)) if k not in missing]
        numbers, layouts = [how.tangents[k] for k in present], [how.layouts[k] for k in present]
        own = [given[n] for n in numbers]
        case = missing, whole
        many = sum(key[0] == case for key in self._all) > MOST
        if plainly := many or is_watched(region.on_gpu) or any(map(is_batched, own)):
            actual_layouts = layouts
        else:
            # Conjugated and negated tensors are copied.
            actual_layouts = [
                layout if t.is_conj() or t.is_neg() else layout.with_strides_of(t)
                for layout, t in zip(layouts, own, strict=True)
            ]
        specialized_pass = self._for(region, case, saved, given, numbers, layouts, actual_layouts)
        self.last[case] = specialized_pass
        run = specialized_pass.run if plainly or not how.sizes else specialized_pass.run_on(given)
        return run, specialized_pass.fitted(given)

    def _for(
        self, region: Gradients, case: tuple[frozenset[int], bool], saved: Sequence[Any], given: Sequence[Any],
        numbers: list[int], layouts: list[Layout], actual_layouts: list[Layout],
    ) -> SpecializedPass:  # fmt: skip
        """Returns the pass for the layouts `actual_layouts`.  `layouts`: those of the recording."""
        key = case, tuple(map(_key, actual_layouts))
        if (cached := self._all.get(key)) is not None:
            return cached
        part = Partial(region.how, *case)
        with region.conditions() as own:
            if differs := relayout(part.graph, actual_layouts) or actual_layouts == layouts:
                taken = [
                    layout.fit(given[n]) for n, layout in zip(numbers, actual_layouts, strict=True)
                ]
                run = region.new_pass(part, case[0], (*saved, *taken))
        if differs:
            run.conditions = own
            specialized_pass = SpecializedPass(numbers, actual_layouts, actual_layouts, run)
            if own and "sizes" in config.logs:
                log("sizes", f"a backward pass counts on {own[0]}")
        else:
            run = self._for(region, case, saved, given, numbers, layouts, layouts).run
            specialized_pass = SpecializedPass(numbers, actual_layouts, layouts, run)
        self._all[key] = specialized_pass
        return specialized_pass


def _key(layout: Layout) -> Any:
    """Returns a key that is equal for equal layouts of gradients of one result."""
    return layout.strides if layout.order is None else (layout.order, layout.repeated)


def is_watched(on_gpu: bool) -> bool:
    """Whether a function transform, a mode, or autocast must see the ops of a backward pass."""
    return (
        transform() is not None
        or dispatch_modes() > 0
        or torch.is_autocast_enabled("cuda" if on_gpu else "cpu")
    )
