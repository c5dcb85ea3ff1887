"""Rules for torch.distributions: attributes read from its classes and not from instances.

Its other code is interpreted like the program's.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from torch.distributions.utils import _lazy_property_and_property, lazy_property

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.library.stand_ins import interpret
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import is_none

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


@knows(lazy_property.__get__, least=2, most=3)
def _lazy_property(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if is_none(t.look(args[1])):
        return t.pinned(_of_class(t.look(args[0]).real.wrapped))
    return interpret(t, lazy_property.__get__, args, kwargs)


@functools.cache
def _of_class(wrapped: Any) -> Any:
    """Returns the attribute of the class: only its type is ever used, so one object can serve all reads."""
    return _lazy_property_and_property(wrapped)
