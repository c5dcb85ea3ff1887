"""The match statement: sequences, mappings and classes. The rest of it is comparisons and jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frameloom.capture.guards.class_lookup import MISSING, class_attribute
from frameloom.capture.interpreter.opcodes.registry import handles
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import NONE, boolean
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.static import ClassValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame

# Bits of `type.__flags__`.
SEQUENCE, MAPPING, MATCHES_ITSELF = 1 << 5, 1 << 6, 1 << 22


@handles("MATCH_SEQUENCE", "MATCH_MAPPING")
def match_kind(frame: Frame, ins: Instr) -> None:
    kind = frame.t.look(frame.stack[-1]).type()
    frame.push(boolean(kind.__flags__ & (SEQUENCE if ins.op == "MATCH_SEQUENCE" else MAPPING)))


@handles("MATCH_KEYS")
def match_keys(frame: Frame, ins: Instr) -> None:
    """Keeps [subject, keys] on the stack and pushes a tuple of the values, or None."""
    t = frame.t
    keys, subject = frame.t.items(t.look(frame.stack[-1])), t.look(frame.stack[-2])
    if isinstance(subject, ObjectValue) and isinstance(subject.payload, DictValue):
        if class_attribute(subject.cls, "get") is not dict.get:
            raise Break("opaque_object", f"match of {subject.describe()}")
        subject = subject.payload
    if not isinstance(subject, DictValue):
        raise Break("opaque_object", f"match of {subject.describe()}")
    if len({t.look(key).key(t) for key in keys}) < len(keys):
        t.raise_unworded(ValueError, "a mapping pattern asks for one key twice")
    values = [subject.get(t, t.look(key)) for key in keys]
    frame.push(NONE if None in values else TupleValue([v for v in values if v is not None]))


@handles("MATCH_CLASS")
def match_class(frame: Frame, ins: Instr) -> None:
    """Replaces [subject, class, names] by a tuple of the attributes, or None."""
    t = frame.t
    names = [t.look(name).constant() for name in t.items(frame.pop())]
    cls, subject = frame.pop(), frame.pop()
    if not isinstance(cls, ClassValue):
        t.raise_(TypeError, "called match pattern must be a class")
    if not t.is_instance(subject, cls):
        frame.push(NONE)
        return
    positional = _positional(frame, cls, ins.arg)
    matched: list[Value] = []
    if positional is None:
        matched.append(subject)
        positional = []
    if len({*positional, *names}) < len(positional) + len(names):
        t.raise_unworded(TypeError, f"{cls.describe()} matches an attribute twice")
    for name in [*positional, *names]:
        try:
            matched.append(subject.getattr(t, name))
        except Raised as raised:
            if not raised.is_a(AttributeError):
                raise
            frame.push(NONE)
            return
    frame.push(TupleValue(matched))


def _positional(frame: Frame, cls: ClassValue, count: int) -> list[str] | None:
    """Returns the attributes that positional patterns match; None if the single pattern matches the subject
    itself."""
    t = frame.t
    if not count:
        return []
    if class_attribute(cls.real, "__match_args__") is MISSING:
        if cls.real.__flags__ & MATCHES_ITSELF and count == 1:
            return None
        names: list[str] = []
    else:
        declared = cls.getattr(t, "__match_args__")
        if not isinstance(declared, TupleValue):
            t.raise_unworded(TypeError, f"{cls.describe()}.__match_args__")
        names = [t.look(name).constant() for name in declared.items]
    if len(names) < count or not all(isinstance(name, str) for name in names):
        t.raise_unworded(TypeError, f"{cls.describe()} has too few positional patterns")
    return names[:count]
