"""Finalizers must run when the program drops the last reference to an object, not when captured code ends."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Sequence
from types import CellType
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import HEAP_TYPE, MISSING, class_attribute
from frameloom.capture.values.base import Value
from frameloom.capture.values.numbers.symbolic import is_symbolic
from frameloom.errors import Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer


# The number of references, as `check_ends` counts them, to an object that only the state of resumed code
# holds: from the list of the state and from what passes the state on.
UNSHARED = 4
# The same for one that only a container holds: from the container and from the list of its contents.
UNSHARED_INSIDE = 3


def is_held_by_variables(t: Tracer, value: Value) -> bool:
    """Whether, as far as we know, only variables hold the object: it is an argument of a resume function. The
    caller of the captured function itself holds that function's arguments."""
    origin = value.origin
    return t.options.resumed and origin is not None and origin.base is None and origin.kind == "arg"


def check_end(t: Tracer, value: Value) -> None:
    """Breaks if a variable or the stack drops the last reference to an object whose end runs code of the
    program: it must run now and not when the captured code ends."""
    if is_held_by_variables(t, value) and not is_symbolic(value):
        seen = runs_code_at_end(t, value.real, value.origin)  # type: ignore[arg-type]
        if seen is not None:
            raise Break("finalizer", f"the end of {seen}")


def check_ends(t: Tracer, state: Sequence[tuple[Any, Origin]], first: int) -> None:
    """Skips resumed code if its state alone holds an object whose end runs code of the program. Such code may
    run when the frame ends or when a container drops the object. Variables before `first` need no check:
    the interpreter sees where they are dropped."""
    for k in range(len(state)):  # no name for the object: it would count as a reference
        if sys.getrefcount(state[k][0]) > UNSHARED and type(state[k][0]) is not CellType:
            continue
        seen = None if k < first else runs_code_at_end(t, state[k][0], state[k][1])
        seen = seen or _code_at_end_inside(state[k][0])
        if seen is not None:
            raise Skip(f"the end of {seen}")


def runs_code_at_end(t: Tracer, obj: Any, origin: Origin) -> str | None:
    """Returns text about an object whose end runs code of the program; guards that there is none."""
    t.guards.add(origin, "type", type(obj))
    if (seen := _text(obj)) is None and type(obj).__weakrefoffset__:
        t.guards.add(origin, "no_callback")
    return seen


def _text(obj: Any) -> str | None:
    cls = type(obj)
    if class_attribute(cls, "__del__") is not MISSING:
        return f"a {cls.__name__}, which has __del__"
    # They are made by weakref.ref and weakref.finalize, and by weak dictionaries and sets.
    if any(one.__callback__ is not None for one in weakref.getweakrefs(obj)):
        return f"a {cls.__name__}, of which a weak reference has a callback"
    return None


def _code_at_end_inside(holder: Any) -> str | None:
    """Returns text about such an object in a container or an instance, or in those that it alone holds."""
    pending = [gc.get_referents(holder)] if _is_holder(type(holder)) else []
    while pending:
        inside = pending.pop()
        for k in range(len(inside)):  # no name for the object here either
            if not _is_holder(type(inside[k])):
                continue
            if (seen := _text(inside[k])) is not None:
                return seen
            if sys.getrefcount(inside[k]) <= UNSHARED_INSIDE:
                pending.append(gc.get_referents(inside[k]))
    return None


def _is_holder(cls: type) -> bool:
    """Whether the objects are containers, cells or instances. Classes, functions and code are not: modules
    and other classes hold them."""
    if issubclass(cls, type):
        return False
    if cls.__flags__ & HEAP_TYPE or cls is CellType:
        return True
    return class_attribute(cls, "__len__") is not MISSING
