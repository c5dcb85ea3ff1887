"""Raw attributes of classes, and the note that the guards need of every look.

What a class has, and what it lacks, decides what a program does: a method, a property, `__getattr__`, `__bool__`.  Classes can change, so while a
capture is going on in this thread each look is noted for its guards (`GuardSet.lookups`), whatever the outcome.  Classes that cannot change are not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from frameloom.errors import Break

MISSING = object()
IMMUTABLE_TYPE = 1 << 8
HEAP_TYPE = 1 << 9  # made by a class statement
ORDER = "the order of its bases"  # in the place of a name
Lookups = dict[tuple[type, str, type | None], Any]  # (class, name, after) -> what was found


class _Noting(threading.local):
    lookups: Lookups | None = None


_noting = _Noting()


@contextmanager
def noting(lookups: Lookups) -> Iterator[None]:
    """Looks of this thread are noted in `lookups`."""
    outer, _noting.lookups = _noting.lookups, lookups
    try:
        yield
    finally:
        _noting.lookups = outer


# Metaclasses are not asked: they may run code of the program.
_order, _table = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__


def class_attribute(cls: type, name: str) -> Any:
    """The raw attribute in the classes' dictionaries, MISSING if there is none."""
    lookups = _noting.lookups
    if lookups is None or cls.__flags__ & IMMUTABLE_TYPE:
        return _find(_order(cls) or (), name)  # a class that is being made has no order yet
    key = (cls, name, None)
    found = lookups.get(key, lookups)
    if found is lookups:
        found = lookups[key] = _find(_order(cls) or (), name)
    return found


def note_order(cls: type) -> None:
    """The classes that `cls` inherits from matter, and their order."""
    if _noting.lookups is not None and not cls.__flags__ & IMMUTABLE_TYPE:
        _noting.lookups[cls, ORDER, None] = _order(cls)


def is_subtype(cls: type, base: type) -> bool:
    """Whether `base` is among the classes that `cls` inherits from.  An abstract class's registrations do not count, and no code of a
    metaclass runs, as it would for `issubclass`."""
    note_order(cls)
    return any(one is base for one in _order(cls) or ())


def attribute_after(cls: type, after: type, name: str) -> Any:
    """The raw attribute in the classes that follow `after` in the resolution order."""
    order = _order(cls)
    found = _find(order[order.index(after) + 1 :], name)
    if _noting.lookups is not None:
        _noting.lookups[cls, name, after] = found
    return found


def _find(order: tuple[type, ...], name: str) -> Any:
    try:
        for base in order:
            table = _table(base)
            if name in table:
                return table[name]
    except Exception as error:  # of a key that is no string
        raise Break("attribute", f"{name}, whose look-up runs code of the program") from error
    return MISSING
