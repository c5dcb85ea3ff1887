"""The classes of Python that have a value class of their own; each file of values adds its rows.

`KINDS` makes the value of an object that existed before the call, `CONTAINERS` has the containers written in C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from frameloom.capture.guards.class_lookup import is_subtype

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.values.base import Value

Existing = Callable[["Tracer", Any, "Origin"], "Value"]
ExistingRule = TypeVar("ExistingRule", bound=Existing)
ValueClass = TypeVar("ValueClass", bound="type[Value]")
KINDS: dict[type, Existing] = {}
CONTAINERS: list[type] = []


def kind(*classes: type) -> Callable[[ExistingRule], ExistingRule]:
    """Registers the function that makes the value of an object from before the call, and adds its guards. It
    is for objects of exactly these classes."""

    def register(rule: ExistingRule) -> ExistingRule:
        KINDS.update(dict.fromkeys(classes, rule))
        return rule

    return register


def container(*classes: type) -> Callable[[ValueClass], ValueClass]:
    """Class decorator: the values stand for containers of these classes, and for instances of subclasses that
    inherit the operators."""

    def register(cls: ValueClass) -> ValueClass:
        CONTAINERS.extend(classes)
        cls.native = classes[0]
        return cls

    return register


def native_class(cls: type) -> type | None:
    """Returns the container class written in C from which `cls` inherits; None if there is none."""
    return next((base for base in CONTAINERS if is_subtype(cls, base)), None)
