"""How gradients of results lie when they come to a backward pass, and which plan that is for.

Eager's gradients of inputs lie as those of the results do.  A plan is compiled for gradients as they lay in the recording; where they come in another layout,
and that makes a difference to what the pass gives, for that one (capture/autograd/gradient_layouts.py).  Where it makes none, the plan gets copies.
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
MOST = 16  # layouts that have plans of their own, where the same gradients are missing


class Came:
    """`numbers`: of the results whose gradients are there; `lying`: how they come; `run`: the pass for these, which takes them as `taken`."""

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
        # Strides that are known; where sizes vary, what tells them; where copies are made, of which layout.
        self._each = [
            (n, own.strides if own.order is None else None, own, None if own == wanted else wanted)
            for n, own, wanted in zip(numbers, lying, taken, strict=True)
        ]

    def run_on(self, given: Sequence[Any]) -> Any:
        """The pass for gradients that come so, but for gaps."""
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
        """Those of a pass that are there, as they are taken; None where they lie otherwise."""
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
        """Copies where they lie otherwise."""
        return [layout.fit(given[n]) for n, layout in zip(self._numbers, self._taken, strict=True)]


class HandingOn:
    """`run`, which gets copies where sizes vary and gradients lie with gaps: those that it only hands on, or views of them, lie as they came."""

    def __init__(self, run: BackwardPass, given: Sequence[Any]) -> None:
        self._run, self._given = run, given

    def __call__(
        self, piece: Any, values: list[Any], taken: list[Any], last: bool
    ) -> Sequence[Any]:
        views: Sequence[Any] = ()
        places, module = self._run.handed
        # Of memory that lies like that there may be no such view: eager copies it.
        with suppress(RuntimeError):
            views = module(*values, *self._given)
        made = [*self._run(piece, values, taken, last)]
        for place, view in zip(places, views, strict=False):
            made[place] = view
        return made


class Passes:
    """Those of one graph, by which gradients are missing and how the others lie."""

    def __init__(self) -> None:
        self.last: dict[tuple[frozenset[int], bool], Came] = {}  # how they came last
        self._all: dict[Any, Came] = {}

    def find(
        self, piece: Gradients, missing: frozenset[int], whole: bool, saved: Sequence[Any], given: Sequence[Any]
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        """The pass, and the gradients that are there as it takes them; `missing`: the entries of `Backward.tangents` without one; `whole`: whether
        the others have all of theirs."""
        how = piece.how
        there = [k for k in range(len(how.tangents)) if k not in missing]
        numbers, layouts = [how.tangents[k] for k in there], [how.layouts[k] for k in there]
        own = [given[n] for n in numbers]
        case = missing, whole
        many = sum(key[0] == case for key in self._all) > MOST
        if plainly := many or is_watched(piece.on_gpu) or any(map(is_batched, own)):
            lying = layouts
        else:
            # Those that are not read as they lie are copied.
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
        """`layouts`: those of the recording."""
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
    """Equal for equal layouts of gradients of one result."""
    return layout.strides if layout.order is None else (layout.order, layout.repeated)


def is_watched(on_gpu: bool) -> bool:
    """Whether a backward pass is to be seen op by op: by a function transform, a mode, or autocast."""
    return (
        transform() is not None
        or dispatch_modes() > 0
        or torch.is_autocast_enabled("cuda" if on_gpu else "cpu")
    )
