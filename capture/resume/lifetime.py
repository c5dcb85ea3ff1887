"""Chooses the variables that a resume function gets.

In: the states of the frames at a break. Out: `slots`, the names that a resume function gets: variables that
are read again, cells, variables to show (`resume/shown_variables.py`), and variables that alone keep an
object alive whose end the program can see. Tensors that are not read again are freed, since they need memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.bytecode.instruction import slot_names
from frameloom.capture.bytecode.liveness import bound_before, live_before
from frameloom.capture.guards.class_lookup import HEAP_TYPE, MISSING, class_attribute
from frameloom.capture.resume.reconstruct import settled
from frameloom.capture.values.base import Value
from frameloom.capture.values.numbers.symbolic import is_unsettled
from frameloom.errors import Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.frame import FrameState
    from frameloom.capture.interpreter.tracer import Tracer


# The number of references, as `check_ends` counts them, to an object that only the state of resumed code
# holds: from the list of the state and from what passes the state on.
UNSHARED = 4


def is_held_by_variables(t: Tracer, value: Value) -> bool:
    """Whether, as far as we know, only variables hold the object: it is an argument of a resume function. The
    caller of the captured function itself holds that function's arguments."""
    origin = value.origin
    return t.resumed and origin is not None and origin.base is None and origin.kind == "arg"


def check_end(t: Tracer, value: Value) -> None:
    """Breaks if a variable or the stack drops the last reference to an object with a finalizer: the finalizer
    must run now and not when the captured code ends."""
    if is_held_by_variables(t, value):
        cls = value.type() if is_unsettled(value) else type(value.real)
        t.guards.add(value.origin, "type", cls)  # type: ignore[arg-type]
        if class_attribute(cls, "__del__") is not MISSING:
            raise Break("finalizer", f"the end of a {cls.__name__}, which has __del__")


def check_ends(t: Tracer, state: Sequence[tuple[Any, Origin]]) -> None:
    """Skips resumed code if one of these alone holds an object with a finalizer, which may run when the frame
    ends or when a container that the code makes drops it."""
    for k in range(len(state)):  # no name for the object: it would count as a reference
        if sys.getrefcount(state[k][0]) > UNSHARED:
            continue
        cls = type(state[k][0])
        if class_attribute(cls, "__del__") is not MISSING:
            t.guards.add(state[k][1], "type", cls)
            raise Skip(f"the end of a {cls.__name__}, which has __del__")


class Lifetimes:
    """The lifetimes of the variables at one break."""

    def __init__(self, t: Tracer, states: list[FrameState]) -> None:
        self._t = t
        self._operands = {id(settled(value)) for value in states[-1].stack}

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
            return id(settled(value)) in self._operands and is_finalizable(settled(value).type())
        if not is_held_by_variables(self._t, value):
            return False
        cls = value.type() if is_unsettled(value) else type(value.real)
        self._t.guards.add(origin, "type", cls)
        return is_finalizable(cls)


def is_finalizable(cls: type) -> bool:
    """Whether instances have a finalizer or can be referred to weakly."""
    if issubclass(cls, torch.Tensor):
        return False
    if cls.__flags__ & HEAP_TYPE and cls.__weakrefoffset__:
        return True
    return class_attribute(cls, "__del__") is not MISSING
