"""`contextvars.ContextVar`: reading one that holds a number, a string or another literal.

The guards read the variable at each call, in the context of the call. Setting one breaks the graph: what
runs after it sees the new value, and the token that it returns belongs to the context.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import LITERALS, ConstValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

UNSET = "frameloom: this context variable is not set"


@knows(ContextVar.get, least=1, most=2)
def _get(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    variable = t.look(args[0]).constant()
    if not isinstance(variable, ContextVar):
        raise Break("unknown_call", "ContextVar.get(...)")
    value = variable.get(UNSET)
    if type(value) not in LITERALS:
        raise Break("unknown_call", f"the object in {variable.name}")
    t.guards.returns(variable.get, (UNSET,), value)
    if value is not UNSET:
        return ConstValue(value)
    if len(args) == 2:
        return t.look(args[1])
    try:
        default = variable.get()
    except LookupError:
        raise Break("exception", f"{variable.name} is not set") from None
    return t.pinned(default)  # a variable keeps its default
