"""Chooses the variables that a resume function gets.

In: the states of the frames at a break. Out: `slots`, the names that a resume function gets: variables that
are read again, cells, variables to show (`resume/shown_variables.py`), and variables that alone keep an
object alive whose end the program can see. Tensors that are not read again are freed, since they need memory,
unless the program makes weak references.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from frameloom.capture.bytecode.instruction import slot_names
from frameloom.capture.bytecode.liveness import bound_before, live_before
from frameloom.capture.guards.class_lookup import HEAP_TYPE, MISSING, class_attribute
from frameloom.capture.interpreter.last_references import is_held_by_variables
from frameloom.capture.values.base import LazyValue, Value, realized
from frameloom.capture.values.numbers.symbolic import is_symbolic

if TYPE_CHECKING:
    from frameloom.capture.interpreter.frame import FrameState
    from frameloom.capture.interpreter.tracer import Tracer

WEAK_MODULES = (weakref.ref.__module__, weakref.WeakSet.__module__)


class Lifetimes:
    """The lifetimes of the variables at one break."""

    def __init__(self, t: Tracer, states: list[FrameState]) -> None:
        self._t = t
        operands = [realized(value) for value in states[-1].stack]
        self._operands = set(map(id, operands))
        t.session.refers_weakly |= any(map(_refers_weakly, operands))

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
            return id(realized(value)) in self._operands and self._shows_its_end(
                realized(value).type()
            )
        if not is_held_by_variables(self._t, value):
            return False
        cls = value.type() if is_symbolic(value) else type(value.real)
        self._t.guards.add(origin, "type", cls)
        return self._shows_its_end(cls)

    def _shows_its_end(self, cls: type) -> bool:
        if issubclass(cls, torch.Tensor):
            return self._t.session.refers_weakly
        return is_finalizable(cls)


def _refers_weakly(value: Value) -> bool:
    """Whether it is a class or a container of the module weakref, or an object made by one."""
    if is_symbolic(value):  # a number, whose value is not to be asked for
        return False
    if issubclass(type(value.real), type):  # past the program's own `__class__`
        cls = value.real
    else:  # an argument that nothing has looked at is lazy
        cls = type(value.real) if isinstance(value, LazyValue) else value.type()
    # NULL on the stack has no class.
    return cls is not None and any(base.__module__ in WEAK_MODULES for base in cls.__mro__)


def is_finalizable(cls: type) -> bool:
    """Whether instances have a finalizer or can be referred to weakly."""
    if issubclass(cls, torch.Tensor):
        return False
    if cls.__flags__ & HEAP_TYPE and cls.__weakrefoffset__:
        return True
    return class_attribute(cls, "__del__") is not MISSING
