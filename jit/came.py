"""How gradients of results lie when they come to a backward pass, and which plan that is for.

Eager's gradients of inputs lie as those of the results do.  A plan is compiled for gradients as they lay in the recording; where they come in another layout,
and that makes a difference to what the pass gives, for that one (capture/relaid.py).  Where it makes none, the plan gets copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.graph import Layout

if TYPE_CHECKING:
    from frameloom.gradients import BackwardPass

MOST = 16  # layouts that have plans of their own, where the same gradients are missing


class Came:
    """`numbers`: of the results whose gradients are there; `lying`: how they come; `run`: the pass for these, which takes them as `taken`."""

    __slots__ = ("_copies", "_lying", "_numbers", "_strides", "_taken", "run")

    def __init__(
        self,
        numbers: Sequence[int],
        lying: Sequence[Layout],
        taken: Sequence[Layout],
        run: BackwardPass,
    ) -> None:
        self._numbers, self._lying, self._taken, self.run = numbers, lying, taken, run
        varies = any(layout.order is not None for layout in lying)
        self._strides = None if varies else [layout.strides for layout in lying]
        self._copies = lying != taken

    def take(self, given: Sequence[Any]) -> list[Any] | None:
        """Those of a pass that are there, as they are taken; None where they lie otherwise."""
        own = [given[n] for n in self._numbers]
        if self._strides is None:
            if not all([layout.is_of(t) for layout, t in zip(self._lying, own, strict=True)]):
                return None
        elif [t.stride() for t in own] != self._strides:
            return None
        if self._copies or any([t.is_conj() or t.is_neg() for t in own]):
            return self.fitted(given)
        return own

    def fitted(self, given: Sequence[Any]) -> list[Any]:
        """Copies where they lie otherwise."""
        return [layout.fit(given[n]) for n, layout in zip(self._numbers, self._taken, strict=True)]


def key_of(lying: Sequence[Layout]) -> tuple[Any, ...]:
    """Equal for equal layouts of gradients of the same results."""
    return tuple(
        (layout.order, layout.repeated) if layout.order is not None else layout.strides
        for layout in lying
    )


def lying(layouts: Sequence[Layout], given: Sequence[torch.Tensor], plainly: bool) -> list[Layout]:
    """How they lie; `plainly`: as if they lay as in the recording."""
    if plainly:
        return [*layouts]
    return [
        layout if t.is_conj() or t.is_neg() else layout.lying_as(t)
        for layout, t in zip(layouts, given, strict=True)
    ]
