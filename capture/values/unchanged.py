"""Whether a place that existed before the call needs no write, since it already holds the right object; what
it holds otherwise is let go of."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.values.base import LazyValue, Value, realized
from frameloom.capture.values.const import LITERALS, ConstValue, same_literal
from frameloom.capture.values.numbers.symbolic import is_symbolic
from frameloom.errors import Skip

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer

ABSENT = object()  # what a place held before the call if it held nothing


def holds(t: Tracer, new: Value, before: Any, place: Origin) -> bool:
    """Whether `place` already holds the right object; this becomes a guard."""
    new = realized(new)
    if before is ABSENT:
        return False
    if isinstance(before, torch.Tensor) and (fake := getattr(new, "fake", None)) is not None:
        t.session.dynamic_policy.outgrow(t.roots.function.__code__, place, fake.shape)
    if new.origin is place:
        return True
    if isinstance(new, LazyValue):  # it was never read: another call may find something else there
        return False
    if is_symbolic(new):
        return False
    if isinstance(new, ConstValue):
        same = type(new.real) in LITERALS and same_literal(new.real, before)
    else:
        same = new.origin is not None and new.real is before
    # A dynamic number may be different in the next call.
    return same and not is_symbolic(t.look(t.wrap(before, place)))


def is_unchanged(t: Tracer, new: Value, before: Any, place: Origin) -> bool:
    """Whether `place` need not be written; otherwise notes that it lets go of what it held."""
    if holds(t, new, before, place):
        return True
    note_end(t, before, place)
    return False


def note_end(t: Tracer, before: Any, place: Origin) -> None:
    """Notes that a write to `place` may free what it held. The program must not see when: compiled code writes
    later than the program."""
    if before is ABSENT:
        return
    if not _capture.ends_silently(before):
        t.guards.add(place, "type", type(before))
        raise Skip(f"the end of a {type(before).__name__}, which has a finalizer")
    t.guards.add(place, "silent_end", 0)


def note_end_of_items(t: Tracer, container: Any, origin: Origin) -> None:
    """Does the same for the items of a container, of which some are let go of."""
    if not all(map(_capture.ends_silently, gc.get_referents(container))):
        raise Skip(f"the end of an item of a {type(container).__name__}, which has a finalizer")
    t.guards.add(origin, "silent_end", 1)


def note_end_of_attribute(t: Tracer, over: Any, origin: Origin, name: str) -> None:
    """Does the same for an attribute of an instance. A read from its dictionary would make that dictionary."""
    if not _capture.stored_ends_silently(over, name):
        raise Skip(f"the end of an attribute {name!r}, which has a finalizer")
    t.guards.add(origin, "silent_attribute", name)
