"""Finalizers must run when the program drops the last reference to an object, not when captured code ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import MISSING, class_attribute
from frameloom.capture.values.base import Value
from frameloom.capture.values.numbers.symbolic import is_symbolic
from frameloom.errors import Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer


# The number of references, as `check_ends` counts them, to an object that only the state of resumed code
# holds: from the list of the state and from what passes the state on.
UNSHARED = 4


def is_held_by_variables(t: Tracer, value: Value) -> bool:
    """Whether, as far as we know, only variables hold the object: it is an argument of a resume function. The
    caller of the captured function itself holds that function's arguments."""
    origin = value.origin
    return t.options.resumed and origin is not None and origin.base is None and origin.kind == "arg"


def check_end(t: Tracer, value: Value) -> None:
    """Breaks if a variable or the stack drops the last reference to an object with a finalizer: the finalizer
    must run now and not when the captured code ends."""
    if is_held_by_variables(t, value):
        cls = value.type() if is_symbolic(value) else type(value.real)
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
