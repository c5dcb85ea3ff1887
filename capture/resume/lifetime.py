"""Chooses the variables that a resume function gets.

In: the states of the frames at a break. Out: `slots`, the names that a resume function gets: variables that
are read again, cells, variables to show (`resume/shown_variables.py`), and variables that alone keep an
object alive whose end the program can see. Tensors that are not read again are freed, since they need memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from frameloom.capture.bytecode.instruction import slot_names
from frameloom.capture.bytecode.liveness import bound_before, live_before
from frameloom.capture.guards.class_lookup import HEAP_TYPE, MISSING, class_attribute
from frameloom.capture.interpreter.last_references import is_held_by_variables
from frameloom.capture.values.base import Value, realized
from frameloom.capture.values.numbers.symbolic import is_symbolic

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import FrameState
    from frameloom.capture.interpreter.tracer import Tracer


class Lifetimes:
    """The lifetimes of the variables at one break."""

    def __init__(self, t: Tracer, states: list[FrameState]) -> None:
        self._t = t
        self._operands = {id(realized(value)) for value in states[-1].stack}

    def slots(self, state: FrameState, index: int, cells: frozenset[str]) -> tuple[str, ...]:
        """Returns the names of the variables to pass to the instruction at `index`."""
        shown, bound = state.shown, state.slots
        if index != state.at.index:  # the same variables on every path
            shown &= bound_before(state.code)[index]
        wanted = live_before(state.code)[index] | shown | cells
        gone = state.at.arg if state.at.op == "DELETE_FAST" and index != state.at.index else None
        return tuple(
            name
            for name in slot_names(state.code)
            if name in bound and (name in wanted or (name != gone and self._is_seen(bound[name])))
        )

    def _is_seen(self, value: Value) -> bool:
        """Whether, as far as we know, only variables hold the object, and the program can see when it is
        freed."""
        origin = value.origin
        if (
            origin is None
        ):  # made in this call: only the code that the break leaves to Python can see it
            return id(realized(value)) in self._operands and is_finalizable(realized(value).type())
        if not is_held_by_variables(self._t, value):
            return False
        cls = value.type() if is_symbolic(value) else type(value.real)
        self._t.guards.add(origin, "type", cls)
        return is_finalizable(cls)


def is_finalizable(cls: type) -> bool:
    """Whether instances have a finalizer or can be referred to weakly."""
    if issubclass(cls, torch.Tensor):
        return False
    if cls.__flags__ & HEAP_TYPE and cls.__weakrefoffset__:
        return True
    return class_attribute(cls, "__del__") is not MISSING
