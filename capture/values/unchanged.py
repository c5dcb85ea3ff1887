"""Whether a place that existed before the call needs no write, since it already holds the right object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.values.base import LazyValue, Value, realized
from frameloom.capture.values.const import LITERALS, ConstValue, same_literal
from frameloom.capture.values.numbers.symbolic import is_symbolic

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer

ABSENT = object()  # what a place held before the call if it held nothing


def is_unchanged(t: Tracer, new: Value, before: Any, place: Origin) -> bool:
    """Whether `place` need not be written. If it already holds the right object, this becomes a guard."""
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
