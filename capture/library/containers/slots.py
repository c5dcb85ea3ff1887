"""Special methods of built-in containers that the program calls by name, such as `[1, 2].__len__()`.

The method of the built-in class runs, also for an instance of a subclass that overrides it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.opcodes import IN_PLACE, SPECIAL_METHODS
from frameloom.capture.interpreter.call_rules import (
    FUNCTIONS,
    Args,
    Kwargs,
    ValueRule,
    arity,
    knows,
)
from frameloom.capture.interpreter.container_operators import container_operator
from frameloom.capture.library.builtins import instance
from frameloom.capture.values.base import Value
from frameloom.capture.values.containers.container import SequenceValue
from frameloom.capture.values.containers.dictionary import DictValue, ViewValue
from frameloom.capture.values.containers.sets import SetValue
from frameloom.capture.values.kinds import CONTAINERS, native_class
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

HELD = (SequenceValue, DictValue, SetValue, ViewValue)


def _iter(t: Tracer, own: Value) -> Value:
    return own.iterate(t)


def _reversed(t: Tracer, own: Value) -> Value:
    return own.reverse(t)


def _len(t: Tracer, own: Value) -> int:
    return own.length(t)


def _contains(t: Tracer, own: Value, item: Value) -> bool:
    return own.contains(t, t.look(item))


def _getitem(t: Tracer, own: Value, key: Value) -> Value:
    return own.getitem(t, t.look(key))


def _setitem(t: Tracer, own: Value, key: Value, value: Value) -> None:
    own.setitem(t, t.look(key), value)


def _delitem(t: Tracer, own: Value, key: Value) -> None:
    own.delitem(t, t.look(key))


RULES: dict[str, Callable[..., Any]] = {
    "__iter__": _iter, "__reversed__": _reversed, "__len__": _len, "__contains__": _contains,
    "__getitem__": _getitem, "__setitem__": _setitem, "__delitem__": _delitem,
}  # fmt: skip


def _operator(name: str, fn: Callable[[Any, Any], Any]) -> ValueRule:
    def rule(t: Tracer, own: Value, other: Value) -> Value:
        other = t.look(other)
        kinds = {native_class(own.type()), native_class(other.type())}
        may_answer = len(kinds) == 1 or kinds == {set, frozenset} or "mul" in name
        result = container_operator(t, fn, own, other) if may_answer else None
        if result is None:  # NotImplemented, or an error
            raise Break("unknown_call", f"{own.describe()}.{name}({other.describe()})")
        return result

    return rule


for _fn, (_forward, _) in SPECIAL_METHODS.items():
    RULES[_forward] = _operator(_forward, _fn)
for _fn, (_name, _) in IN_PLACE.items():
    RULES[_name] = _operator(_name, _fn)
RULES["__rmul__"] = RULES["__mul__"]  # sequences do the same


def _called_on_held(rule: Callable[..., Any], cls: type, name: str) -> Any:
    def called(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
        own = instance(t, args, HELD)
        if native_class(own.type()) is not cls or issubclass(own.type(), OrderedDict):
            raise Break("unknown_call", f"{cls.__name__}.{name}({own.describe()})")
        return rule(t, own, *args[1:])

    return called


for _cls in CONTAINERS:
    for _name, _rule in RULES.items():
        _method = vars(_cls).get(_name)
        if _method is not None and _method not in FUNCTIONS:
            knows(_method, **arity(_rule))(_called_on_held(_rule, _cls, _name))
