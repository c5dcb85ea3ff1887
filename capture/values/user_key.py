"""Keys of dictionaries and sets whose class has a `__hash__` written in Python.

During the capture, `UserKey` stands for such a key. The capture calls the key's own `__hash__` and
`__eq__` a different number of times than plain Python, and new code that rebuilds the dictionary calls
them once more. So both may only compute from attributes that are constants; plain Python handles any other
key. If the attributes have changed since then, plain Python makes the dictionary, too.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterable
from types import FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any

from frameloom.capture.guards.class_lookup import MISSING, class_attribute
from frameloom.capture.values.base import NotConstant
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.values.object import ObjectValue


class UserKey:
    """Stands for an object whose class has a `__hash__` in Python; two are equal if the program's `__eq__`
    says so."""

    def __init__(self, t: Tracer, value: ObjectValue) -> None:
        self.t = t
        self.stands_for = value
        broken = Break("dictionary_key", f"hash({value.describe()})")
        self.site = t.site_or(broken)
        self.key_attributes = _key_attributes(value)
        self.equal_key: UserKey | None = None  # the equal key in a table
        if self.key_attributes is None:
            raise broken
        hashed = value.call_special(t, "__hash__")
        assert hashed is not None
        self.hashed = t.index(hashed)

    def __hash__(self) -> int:
        return hash(self.hashed)

    def __eq__(self, other: object) -> bool:
        """Compares keys of equal hash. Unequal ones break, so they are never in one table. Therefore copying
        a table compares nothing, and each operation of the program compares a key once."""
        if isinstance(other, UserKey):
            if (
                other.stands_for is self.stands_for
                or other.equal_key is self
                or self.equal_key is other
            ):
                return True
            if self.t.same_or_equal(self.stands_for, other.stands_for):
                other.equal_key = self
                return True
        raise Break("dictionary_key", f"{self.stands_for.describe()} beside a key of equal hash")

    def check_rebuild(self) -> None:
        """Raises Avoid if the hash may have changed."""
        if _key_attributes(self.stands_for) != self.key_attributes:
            raise Avoid(self.site)


def check_keys(keys: Iterable[Any]) -> None:
    """Checks all keys, also those that are parts of others."""
    for key in keys:
        if isinstance(key, UserKey):
            key.check_rebuild()
        elif isinstance(key, tuple | frozenset):
            check_keys(key)


def _key_attributes(value: ObjectValue) -> dict[str, tuple[type, Any]] | None:
    """Returns the attributes that hash and comparison read; None if they may read or do more."""
    methods = [class_attribute(value.cls, name) for name in ("__hash__", "__eq__")]
    if methods[1] is object.__eq__:
        del methods[1]
    if value.payload is not None or not all(_only_computes(value.cls, m) for m in methods):
        return None
    if class_attribute(value.cls, "__getattribute__") is not object.__getattribute__:
        return None
    attributes: dict[str, tuple[type, Any]] = {}
    methods_called = False
    for name in set().union(*map(_attribute_names, methods)):
        in_class = class_attribute(value.cls, name)
        if name == "__class__":
            continue
        is_data = isinstance(in_class, MemberDescriptorType) or _is_literal(in_class)
        if in_class is not MISSING and not is_data:
            return None
        attribute = _attribute(value, name)
        if attribute is MISSING:
            methods_called = True  # of an attribute's value
        elif type(attribute) is list and value.real is None and _is_literal(tuple(attribute)):
            attributes[name] = list, tuple(attribute)
        elif _is_literal(attribute):
            attributes[name] = type(attribute), attribute
        else:
            return None
    has_lists = any(cls is list for cls, _ in attributes.values())
    return None if has_lists and methods_called else attributes


def _attribute_names(method: FunctionType) -> set[str]:
    steps = dis.get_instructions(method.__code__)
    return {step.argval for step in steps if step.opname in ("LOAD_ATTR", "LOAD_METHOD")}


def _attribute(value: ObjectValue, name: str) -> Any:
    """Returns the constant in an attribute: MISSING if there is none, `value` if it is not a constant."""
    if name in value.attributes:
        try:
            # an attribute that is written back after the dictionary is rebuilt does not count
            return value if value.origin is not None else value.attributes[name].constant()
        except NotConstant:
            return value
    if value.real is None:
        return MISSING
    try:
        return object.__getattribute__(value.real, name)
    except AttributeError:
        return MISSING


def _only_computes(cls: type, method: Any) -> bool:
    if not isinstance(method, FunctionType):
        return False
    code = method.__code__
    if code.co_freevars or code.co_cellvars:
        return False
    for step in dis.get_instructions(code):
        head = step.opname.partition("_")[0]
        if head in ("STORE", "DELETE", "IMPORT") and not step.opname.startswith("STORE_FAST"):
            return False
        if step.opname == "LOAD_GLOBAL":
            target = method.__globals__.get(step.argval, MISSING)
            is_own_class = type(target) is type and target in cls.__mro__  # for `isinstance`
            if not is_own_class and (target is not MISSING or step.argval not in SAFE):
                return False
    return True


def _is_literal(obj: Any) -> bool:
    if type(obj) in (tuple, frozenset):
        return all(map(_is_literal, obj))
    return type(obj) in (str, int, float, bool, complex, bytes, type(None))


SAFE = frozenset({"hash", "type", "isinstance", "tuple", "frozenset", "len", "str", "int", "NotImplemented"})  # fmt: skip
assert all(hasattr(builtins, name) for name in SAFE)
