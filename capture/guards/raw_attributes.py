"""Makes instances, and reads and writes their attributes, without running the Python code of their classes.

The interpreter calls these functions on the program's objects, and new code calls them, too.
"""

from __future__ import annotations

from collections import OrderedDict
from types import MemberDescriptorType, SimpleNamespace
from typing import Any

from frameloom.capture.guards.class_lookup import (
    HEAP_TYPE,
    class_attribute,
    is_data_descriptor,
    is_subtype,
)


def new_instance(cls: Any, items: Any = None) -> Any:
    """Called from new code: returns an instance whose `__init__` has not run."""
    bases: tuple[Any, ...] = (dict, list, tuple, int, float, str, BaseException, SimpleNamespace)
    for base in bases:
        if issubclass(cls, base):
            return base.__new__(cls, items) if items is not None else base.__new__(cls)
    return object.__new__(cls)


def set_attributes(obj: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    """Called from new code: writes attributes without any `__setattr__` or descriptor, whose code was already
    interpreted."""
    for name, value in zip(names, values, strict=True):
        write_attribute(obj, name, value)


def write_attribute(obj: Any, name: str, value: Any) -> None:
    """Writes an attribute by assignment if that runs no code of the program: creating the object's dictionary
    would make the object larger and slower."""
    attribute = class_attribute(type(obj), name)
    is_stored = isinstance(attribute, MemberDescriptorType) or not is_data_descriptor(attribute)
    table = None if is_stored and is_generic(type(obj)) else instance_dict(obj)
    if table is None or isinstance(attribute, MemberDescriptorType):
        object.__setattr__(obj, name, value)
    else:
        table[name] = value


def is_generic(cls: type) -> bool:
    """Whether `object.__setattr__` accepts instances of the class."""
    native = next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)
    return native.__setattr__ is object.__setattr__


def delete_attribute(obj: Any, name: str) -> None:
    table = instance_dict(obj)
    if table is None or name not in table:
        object.__delattr__(obj, name)
    else:
        del table[name]


DICT_STORES = {OrderedDict: OrderedDict.__setitem__, dict: dict.__setitem__}


def instance_dict(obj: Any) -> dict[str, Any] | None:
    try:
        return object.__getattribute__(obj, "__dict__")  # type: ignore[no-any-return]
    except AttributeError:
        return None


def is_own_slot(cls: type, name: str, attribute: Any) -> bool:
    """Whether a raw attribute is the slot of that name, and not one stored under another name or one of a
    class unrelated to `cls`."""
    return (
        isinstance(attribute, MemberDescriptorType)
        and attribute.__name__ == name
        and is_subtype(cls, attribute.__objclass__)
    )
