"""Raw attributes of classes; each look-up is noted, since the guards must repeat it.

What a class has, and what it lacks, decides what a program does: a method, a property, `__getattr__`,
`__bool__`. Classes can change. So while this thread captures, each look-up is noted for the guards
(`GuardSet.lookups`), whatever its result. Look-ups in classes that cannot change are not noted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import (
    DynamicClassAttribute,
    FunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any

from frameloom.errors import Break

MISSING = object()
IMMUTABLE_TYPE = 1 << 8
HEAP_TYPE = 1 << 9  # a class statement made it
ORDER = "the order of its bases"  # used in place of a name
Lookups = dict[tuple[type, str, type | None], Any]  # (class, name, after) -> what was found


class _Noting(threading.local):
    lookups: Lookups | None = None


_noting = _Noting()


@contextmanager
def noting(lookups: Lookups) -> Iterator[None]:
    """Notes the look-ups of this thread in `lookups`."""
    outer, _noting.lookups = _noting.lookups, lookups
    try:
        yield
    finally:
        _noting.lookups = outer


# These do not call metaclasses, which may run code of the program.
_order, _table = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__


def class_attribute(cls: type, name: str) -> Any:
    """Returns the raw attribute from the classes' dictionaries, MISSING if there is none."""
    lookups = _noting.lookups
    if lookups is None or cls.__flags__ & IMMUTABLE_TYPE:
        return _find(_order(cls) or (), name)  # a class that is being made has no order yet
    key = (cls, name, None)
    attribute = lookups.get(key, lookups)
    if attribute is lookups:
        attribute = lookups[key] = _find(_order(cls) or (), name)
    return attribute


def note_order(cls: type) -> None:
    """Notes that the base classes of `cls` and their order matter."""
    if _noting.lookups is not None and not cls.__flags__ & IMMUTABLE_TYPE:
        _noting.lookups[cls, ORDER, None] = _order(cls)


def is_subtype(cls: type, base: type) -> bool:
    """Whether `cls` inherits from `base`. Registrations of abstract classes do not count, and unlike in
    `issubclass`, no code of a metaclass runs."""
    note_order(cls)
    return any(one is base for one in _order(cls) or ())


def name_in_texts(cls: type) -> str:
    """Returns the name of a class as Python's own errors show it: with its module if it is written in C."""
    if not cls.__flags__ & IMMUTABLE_TYPE or cls.__module__ == "builtins":
        return cls.__name__
    return f"{cls.__module__}.{cls.__name__}"


def works_as(descriptor: Any, kind: type, access: str = "__get__") -> bool:
    """Whether a raw attribute is a descriptor of that kind whose class does not override this access."""
    if type(descriptor) is kind:
        return True
    return isinstance(descriptor, kind) and (
        class_attribute(type(descriptor), access) is class_attribute(kind, access)
    )


def is_data_descriptor(attribute: Any) -> bool:
    """Whether it takes precedence over the instance attribute of its name. CPython has one slot for both
    methods."""
    cls = type(attribute)
    return attribute is not MISSING and (
        class_attribute(cls, "__set__") is not MISSING
        or class_attribute(cls, "__delete__") is not MISSING
    )


def is_programs(attribute: Any) -> bool:
    """Whether a raw attribute is code that the program gives to a class: it may read and do anything. Code of
    `enum` and similar modules depends only on the class."""
    if isinstance(attribute, property | DynamicClassAttribute):
        attribute = attribute.fget
    elif isinstance(attribute, classmethod | staticmethod):
        attribute = attribute.__func__
    if isinstance(attribute, FunctionType):
        return attribute.__module__ not in ("enum", "typing", "abc", "inspect")
    # An object that `functools` made of a function, or a callable object of the program.
    kind = type(attribute)
    if attribute is MISSING or kind.__module__ == "builtins" or isinstance(attribute, type):
        return False
    return any(_find(_order(kind), name) is not MISSING for name in ("__call__", "__get__"))


def refuses_instances(cls: type, attribute: Any) -> bool:
    """Whether a raw attribute is a method, written in C, of a class that `cls` does not inherit from. A call
    raises TypeError."""
    if not isinstance(attribute, WrapperDescriptorType | MethodDescriptorType):
        return False
    return attribute.__objclass__ not in _order(cls)


def is_programs_method(cls: type, attribute: Any) -> bool:
    """Whether a raw attribute is a special method that the program gives the class: code of the program, or a
    method of a class that it does not inherit."""
    return is_programs(attribute) or refuses_instances(cls, attribute)


def asks_program(cls: type, names: Iterable[str]) -> bool:
    """Whether the program gives a class one of these special methods."""
    return bool(cls.__flags__ & HEAP_TYPE) and any(
        is_programs_method(cls, class_attribute(cls, name)) for name in names
    )


def has_programs_methods(cls: type) -> bool:
    """Whether a class of constants has special methods in code of the program that functions written in C may
    call. Methods that make instances or texts do not count."""
    if not cls.__flags__ & HEAP_TYPE:
        return False
    tables = (_table(base) for base in _order(cls) if base.__flags__ & HEAP_TYPE)
    return any(
        name.startswith("__") and name not in NOT_ASKED and is_programs_method(cls, own)
        for table in tables
        for name, own in table.items()
    )


NOT_ASKED = frozenset(
    {"__new__", "__init__", "__call__", "__str__", "__repr__", "__format__", "__dir__",
     "__prepare__", "__init_subclass__", "__set_name__", "__class_getitem__"}
)  # fmt: skip


def attribute_after(cls: type, after: type, name: str) -> Any:
    """Returns the raw attribute from the classes after `after` in the resolution order."""
    order = _order(cls)
    attribute = _find(order[order.index(after) + 1 :], name)
    if _noting.lookups is not None:
        _noting.lookups[cls, name, after] = attribute
    return attribute


def _find(order: tuple[type, ...], name: str) -> Any:
    try:
        for base in order:
            table = _table(base)
            if name in table:
                return table[name]
    except Exception as error:  # from a key that is not a string
        raise Break("attribute", f"{name}, whose look-up runs code of the program") from error
    return MISSING
