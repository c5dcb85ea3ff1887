"""Raw attributes of classes, and the note that the guards need of every look.

What a class has, and what it lacks, decides what a program does: a method, a property, `__getattr__`, `__bool__`.  Classes can change, so while a
capture is going on in this thread each look is noted for its guards (`GuardSet.lookups`), whatever the outcome.  Classes that cannot change are not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import DynamicClassAttribute, FunctionType
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


def name_in_texts(cls: type) -> str:
    """As Python's own errors call it: with its module, where it is written in C."""
    if not cls.__flags__ & IMMUTABLE_TYPE or cls.__module__ == "builtins":
        return cls.__name__
    return f"{cls.__module__}.{cls.__name__}"


def works_as(found: Any, kind: type, access: str = "__get__") -> bool:
    """Whether a raw attribute is a descriptor of that kind, whose class does not say otherwise what such an access does."""
    if type(found) is kind:
        return True
    return isinstance(found, kind) and (
        class_attribute(type(found), access) is class_attribute(kind, access)
    )


def is_data_descriptor(found: Any) -> bool:
    """Whether it comes before what an instance has under its name: CPython has one slot for both methods."""
    cls = type(found)
    return found is not MISSING and (
        class_attribute(cls, "__set__") is not MISSING
        or class_attribute(cls, "__delete__") is not MISSING
    )


def is_programs(found: Any) -> bool:
    """Whether a raw attribute is code that the program gives to a class: it may read, and do, anything.  That of `enum` and its like depends on the class alone."""
    if isinstance(found, property | DynamicClassAttribute):
        found = found.fget
    elif isinstance(found, classmethod | staticmethod):
        found = found.__func__
    if isinstance(found, FunctionType):
        return found.__module__ not in ("enum", "typing", "abc", "inspect")
    # What `functools` makes of functions, or an object of the program's that is called.
    kind = type(found)
    if found is MISSING or kind.__module__ == "builtins" or isinstance(found, type):
        return False
    return any(_find(_order(kind), name) is not MISSING for name in ("__call__", "__get__"))


def asks_program(cls: type, names: Iterable[str]) -> bool:
    """Whether one of these special methods of a class is code of the program."""
    return bool(cls.__flags__ & HEAP_TYPE) and any(
        is_programs(class_attribute(cls, name)) for name in names
    )


def has_programs_methods(cls: type) -> bool:
    """Whether a class of which constants are says by code of the program what functions written in C make of them.  (Their texts and how one
    comes by them are no matter here.)"""
    if not cls.__flags__ & HEAP_TYPE:
        return False
    tables = (_table(base) for base in _order(cls) if base.__flags__ & HEAP_TYPE)
    return any(
        name.startswith("__") and name not in NOT_ASKED and is_programs(own)
        for table in tables
        for name, own in table.items()
    )


NOT_ASKED = frozenset(
    {"__new__", "__init__", "__call__", "__str__", "__repr__", "__format__", "__dir__",
     "__prepare__", "__init_subclass__", "__set_name__", "__class_getitem__"}
)  # fmt: skip


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
