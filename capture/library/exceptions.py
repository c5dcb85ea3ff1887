"""Methods of exceptions: `__init__`, `add_note`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.values.containers.container import ListValue
from frameloom.capture.values.exception import NATIVE_INITS, ExceptionValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def _own(t: Tracer, args: Args) -> ExceptionValue:
    value = t.look(args[0])
    if not isinstance(value, ExceptionValue):
        raise Break("exception", f"method of {value.describe()}")
    return value


@knows(*NATIVE_INITS, least=1)
def _init(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    _own(t, args).set_args(t, args[1:])


@knows(BaseException.add_note, least=2, most=2)
def _add_note(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    own, note = _own(t, args), t.look(args[1])
    if note.type() is not str:
        t.raise_unworded(TypeError, "add_note(...) of what is no string")
    if "__notes__" not in own.attributes:
        own.setattr(t, "__notes__", ListValue([]))
    notes = own.getattr(t, "__notes__")
    if not isinstance(notes, ListValue):
        raise Break("exception", "add_note(...)")
    notes.append(t, note)
