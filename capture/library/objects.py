"""Builtins for an object as a whole: identity, hash, attributes; and types.SimpleNamespace."""

from __future__ import annotations

import _thread
import operator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import MISSING
from frameloom.capture.interpreter import operators
from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.values.attributes import AttributesValue
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.object import ObjectValue, boxed
from frameloom.capture.values.token import TokenValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


@knows(id, least=1, most=1)
def _id(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return TokenValue(id, [t.look(args[0])])


@knows(_thread.get_ident)
def _get_ident(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return TokenValue(_thread.get_ident, [])


class Hashed:
    """Its `__hash__` returns the program's result, from which Python makes the hash."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __hash__(self) -> int:
        return self.given  # type: ignore[no-any-return]


@knows(hash, least=1, most=1)
def _hash(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    if (
        isinstance(value, ObjectValue)
        and (hash_value := value.call_special(t, "__hash__")) is not None
    ):
        return t.evaluate(lambda given: hash(Hashed(given)), [hash_value], {})
    value = boxed(value) or value
    if isinstance(value, ConstValue) or value.type().__hash__ in (
        tuple.__hash__,
        frozenset.__hash__,
    ):
        return t.evaluate(hash, [value], {})
    value.key(t)  # raises if there is no hash
    raise Break("identity", f"hash({value.describe()})")


@knows(vars, least=1, most=1)
def _vars(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        return t.look(args[0]).getattr(t, "__dict__")
    except Raised as raised:
        if raised.is_a(AttributeError):
            t.raise_(TypeError, "vars() argument must have __dict__ attribute")
        raise


@knows(dir, least=1, most=1)
def _dir(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    if not isinstance(value, ObjectValue) or value.special("__dir__") is not MISSING:
        return t.evaluate(dir, args, kwargs)
    own = AttributesValue(value).entries(t)
    return t.from_python(sorted({*dir(value.cls), *(str(name) for name in own)}))


# --- types.SimpleNamespace


@knows(SimpleNamespace, most=0, keywords="*")
def _namespace(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    result = ObjectValue(SimpleNamespace)
    result.attributes.update(kwargs)
    return result


@knows(SimpleNamespace.__eq__, least=2, most=2)
def _namespace_eq(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return namespace_equal(t, t.look(args[0]), t.look(args[1]))


def namespace_equal(t: Tracer, left: Value, right: Value) -> Value:
    tables: list[Any] = []
    for side in (left, right):
        if not isinstance(side, ObjectValue) or not issubclass(side.cls, SimpleNamespace):
            return ConstValue(NotImplemented)
        tables.append(AttributesValue(side))
    return operators.binary(t, operator.eq, *tables)


@knows(SimpleNamespace.__repr__, least=1, most=1)
def _namespace_repr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = t.look(args[0])
    assert isinstance(value, ObjectValue)
    name = "namespace" if value.cls is SimpleNamespace else value.cls.__name__
    shown = []
    for key, item in AttributesValue(value).entries(t).values():
        text = t.call_builtin(repr, [item], {}).constant()
        shown.append(f"{key.constant()}={text}")
    return ConstValue(f"{name}({', '.join(shown)})")
