"""`inspect.Signature.bind` and its results, for signatures that are constants."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.object import ObjectValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def _signature(value: Value) -> inspect.Signature:
    if not isinstance(value, ConstValue) or type(value.real) is not inspect.Signature:
        raise Break("library_call", "inspect.Signature.bind(...)")
    return value.real


def _stored(t: Tracer, bound: Any) -> Value:
    """Returns the value of a plain tuple or dictionary that `inspect` made of our values."""
    if isinstance(bound, Value):
        return bound
    if isinstance(bound, tuple):
        return TupleValue([_stored(t, item) for item in bound])
    table = DictValue()
    for name, item in bound.items():
        table.setitem(t, ConstValue(name), _stored(t, item))
    return table


def _bind(partial: bool) -> Any:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        signature = _signature(t.look(args[0]))
        bind = signature.bind_partial if partial else signature.bind
        try:
            bound = bind(*args[1:], **kwargs)
        except TypeError as error:
            return t.raise_(TypeError, *error.args)
        result = ObjectValue(inspect.BoundArguments)
        result.attributes["arguments"] = _stored(t, bound.arguments)
        result.attributes["_signature"] = args[0]
        return result

    return handler


knows(inspect.Signature.bind, least=1, keywords="*")(_bind(partial=False))
knows(inspect.Signature.bind_partial, least=1, keywords="*")(_bind(partial=True))


@knows(inspect.BoundArguments.apply_defaults, least=1, most=1)
def _apply_defaults(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    """Gives missing arguments their defaults, in the order of the parameters."""
    bound = t.look(args[0])
    if not isinstance(bound, ObjectValue) or bound.real is not None:
        raise Break("library_call", "inspect.BoundArguments.apply_defaults(...)")
    given = t.look(bound.attributes["arguments"])
    signature = _signature(t.look(bound.attributes["_signature"]))
    if not isinstance(given, DictValue):
        raise Break("library_call", "inspect.BoundArguments.apply_defaults(...)")
    complete = DictValue()
    for name, parameter in signature.parameters.items():
        value = given.get(t, ConstValue(name))
        if value is None:
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                value = TupleValue([])
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                value = DictValue()
            elif parameter.default is inspect.Parameter.empty:
                continue  # left out by bind_partial
            else:
                value = t.pinned(parameter.default)
        complete.setitem(t, ConstValue(name), value)
    t.change(bound)
    bound.attributes["arguments"] = complete
