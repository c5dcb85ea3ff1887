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

from frameloom.capture.autograd.gradient_layouts import relay
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


class Came:
    """The pass `run` for gradients with the layouts `lying`.  `numbers`: the results that have a gradient;
    `taken`: the layouts that `run` expects."""

    __slots__ = ("_copies", "_each", "_numbers", "_taken", "run")

    def __init__(
        self,
        numbers: Sequence[int],
        lying: Sequence[Layout],
        taken: Sequence[Layout],
        run: BackwardPass,
    ) -> None:
        self._numbers, self._taken, self.run = numbers, taken, run
        self._copies = lying != taken
        # Per gradient: its number, its strides (None if sizes are symbolic), its layout, and the layout of
        # the copy (None if no copy is needed).
        self._each = [
            (n, own.strides if own.order is None else None, own, None if own == wanted else wanted)
            for n, own, wanted in zip(numbers, lying, taken, strict=True)
        ]

    def run_on(self, given: Sequence[Any]) -> Any:
        """Returns the pass for gradients with these layouts, except for gaps."""
        if (
            not self._copies
            and self.run.handed[0]
            and not all(
                layout.is_of(given[n]) for n, layout in zip(self._numbers, self._taken, strict=True)
            )
        ):
            return HandingOn(self.run, [given[n] for n in self._numbers])
        return self.run

    def take(self, given: Sequence[Any]) -> list[Any] | None:
        """Returns the gradients in the layouts that the pass expects; None if they do not have the layouts of
        this object."""
        found = []
        for n, strides, lying, wanted in self._each:
            tensor = given[n]
            if strides is None:
                strides = lying.strides_at(tensor.shape)
            if tensor.stride() != strides or tensor.is_conj() or tensor.is_neg():
                return None
            found.append(tensor if wanted is None else wanted.fit(tensor))
        return found

    def fitted(self, given: Sequence[Any]) -> list[Any]:
        """Returns the gradients; those with another layout are copied."""
        return [layout.fit(given[n]) for n, layout in zip(self._numbers, self._taken, strict=True)]


class HandingOn:
    """Runs `run`, which gets copies of gradients with gaps if sizes are symbolic.  Results that are given
    gradients, or views of them, are made from the originals instead of the copies, so they keep the
    layout."""

    def __init__(self, run: BackwardPass, given: Sequence[Any]) -> None:
        self._run, self._given = run, given

    def __call__(
        self, piece: Any, values: list[Any], taken: list[Any], last: bool
    ) -> Sequence[Any]:
        views: Sequence[Any] = ()
        places, module = self._run.handed
        # With this layout the view may be impossible: then eager makes a copy.
        with suppress(RuntimeError):
            views = module(*values, *self._given)
        made = [*self._run(piece, values, taken, last)]
        for place, view in zip(places, views, strict=False):
            made[place] = view
        return made


class Passes:
    """The backward passes of one graph, by the set of missing gradients and the layouts of the others."""

    def __init__(self) -> None:
        self.last: dict[tuple[frozenset[int], bool], Came] = {}  # that of the last pass
        self._all: dict[Any, Came] = {}

    def find(
        self, piece: Gradients, missing: frozenset[int], whole: bool, saved: Sequence[Any], given: Sequence[Any]
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        """Returns the pass, and the gradients in the layouts that it expects.  `missing`: the entries of
        `Backward.tangents` without a gradient; `whole`: whether the other gradients are complete sums."""
        how = piece.how
        there = [k for k in range(len(how.tangents)) if k not in missing]
        numbers, layouts = [how.tangents[k] for k in there], [how.layouts[k] for k in there]
        own = [given[n] for n in numbers]
        case = missing, whole
        many = sum(key[0] == case for key in self._all) > MOST
        if plainly := many or is_watched(piece.on_gpu) or any(map(is_batched, own)):
            lying = layouts
        else:
            # Conjugated and negated tensors are copied.
            lying = [
                layout if t.is_conj() or t.is_neg() else layout.lying_as(t)
                for layout, t in zip(layouts, own, strict=True)
            ]
        came = self._for(piece, case, saved, given, numbers, layouts, lying)
        self.last[case] = came
        run = came.run if plainly or not how.sizes else came.run_on(given)
        return run, came.fitted(given)

    def _for(
        self, piece: Gradients, case: tuple[frozenset[int], bool], saved: Sequence[Any], given: Sequence[Any],
        numbers: list[int], layouts: list[Layout], lying: list[Layout],
    ) -> Came:  # fmt: skip
        """Returns the pass for the layouts `lying`.  `layouts`: those of the recording."""
        key = case, tuple(map(_key, lying))
        if (found := self._all.get(key)) is not None:
            return found
        part = Partial(piece.how, *case)
        with piece.conditions() as own:
            if differs := relay(part.graph, lying) or lying == layouts:
                taken = [layout.fit(given[n]) for n, layout in zip(numbers, lying, strict=True)]
                run = piece.new_pass(part, case[0], (*saved, *taken))
        if differs:
            run.conditions = own
            came = Came(numbers, lying, lying, run)
            if own and "sizes" in config.logs:
                log("sizes", f"a backward pass counts on {own[0]}")
        else:
            run = self._for(piece, case, saved, given, numbers, layouts, layouts).run
            came = Came(numbers, lying, layouts, run)
        self._all[key] = came
        return came


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
