"""Tuples, lists and slices.

For a container from before the call, guards on type and length are added when it is looked at, and guards
on items when they are used. A changed list is written back at the end of the capture (`effects`); new
code builds new ones.
"""

from __future__ import annotations

import operator
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

import torch

from frameloom.capture.bytecode.opcodes import COMPARISONS
from frameloom.capture.guards.class_lookup import has_programs_methods
from frameloom.capture.values.base import Effect, NotConstant, Value
from frameloom.capture.values.const import LITERALS, ConstValue, boolean
from frameloom.capture.values.containers.iterator import ReversedIterator, SequenceIterator
from frameloom.capture.values.kinds import container, kind
from frameloom.capture.values.opaque import OpaqueValue
from frameloom.capture.values.unchanged import holds, note_end_of_items
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.base import Copier

EQUALITY = (operator.eq, operator.ne)
MAX_ITEMS = 100_000


class SequenceValue(Value):
    """The base class of lists and tuples. `items` are values, possibly lazy."""

    items: list[Value]
    native: type

    @property
    def is_shared(self) -> bool:
        """Whether CPython returns the object itself where a copy with the same items is requested."""
        return self.type() is tuple

    def parts(self) -> list[Value]:
        return self.items

    def length(self, t: Tracer) -> int:
        return len(self.items)

    def getitem(self, t: Tracer, key: Value) -> Value:
        if isinstance(key, SliceValue):
            place = key.constant()
            is_whole = place.indices(len(self.items)) == (0, len(self.items), 1)
            return self if is_whole and self.is_shared else self.like(self.items[place])
        kind = self.type().__name__
        fault = f"{kind} indices must be integers or slices, not {{}}"
        index = t.index(key, fault, len(self.items))
        if not -len(self.items) <= index < len(self.items):
            t.raise_(
                IndexError,
                f"{self.native.__name__} index out of range",
            )
        return t.look(self.items[index])

    def reverse(self, t: Tracer) -> Value:
        return ReversedIterator(self, len(self.items))

    def like(self, items: list[Value]) -> SequenceValue:
        raise NotImplementedError

    def operator(self, t: Tracer, fn: Any, other: Value) -> Value | None:
        if not isinstance(other, SequenceValue):
            return None
        same_type = self.native is other.native
        if fn is operator.add and same_type:
            return self._sum(t, other)
        if fn in EQUALITY and not (same_type and len(self.items) == len(other.items)):
            return boolean(fn is operator.ne)
        return self._comparison(t, fn, other) if fn in COMPARISONS.values() and same_type else None

    def _sum(self, t: Tracer, other: SequenceValue) -> Value | None:
        items = [*self.items, *other.items]
        if self._adds_sizes(other):  # it refuses other items
            are_sizes = all(t.look(item).type() is int for item in items)
            return TupleValue(items, torch.Size) if are_sizes else None
        for one, another in ((self, other), (other, self)):
            if one.is_shared and not another.items:
                return one
        return self.like(items)

    def _adds_sizes(self, other: SequenceValue) -> bool:
        """Whether the sum is computed by a method of `torch.Size`."""
        if self.type() is torch.Size:
            return "__add__" in vars(torch.Size)
        return other.type() is torch.Size and "__radd__" in vars(torch.Size)

    def _comparison(self, t: Tracer, fn: Any, other: SequenceValue) -> Value:
        at = 0  # comparing may change both, so the lengths are read again each time
        while at < min(len(self.items), len(other.items)):
            if not t.same_or_equal(self.items[at], other.items[at]):
                break
            at += 1
        if at >= min(len(self.items), len(other.items)):
            return boolean(fn(len(self.items), len(other.items)))
        if fn in EQUALITY:
            return boolean(fn is operator.ne)
        return t.binary(fn, self.items[at], other.items[at])

    def repeated(self, t: Tracer, count: Value) -> SequenceValue:
        times = t.index(count)
        if self.is_shared and (times == 1 or not self.items):
            return self
        if len(self.items) * times > MAX_ITEMS:
            raise Break("too_large", f"{len(self.items) * times} items")
        return self.like(self.items * times)

    def contains(self, t: Tracer, item: Value) -> bool:
        return any(t.same_or_equal(t.look(own), item) for own in self.items)

    def count(self, t: Tracer, item: Value) -> int:
        return sum(t.same_or_equal(own, item) for own in self.items)

    def find(self, t: Tracer, item: Value) -> int | None:
        return next(
            (i for i, own in enumerate(self.items) if t.same_or_equal(t.look(own), item)), None
        )


@container(tuple)
class TupleValue(SequenceValue):
    """A tuple or an instance of a subclass that has only its items (torch.Size, namedtuples,
    torch.return_types)."""

    def __init__(
        self, items: list[Value], cls: type = tuple, real: Any = None, origin: Origin | None = None
    ) -> None:
        self.items = items
        self.cls = cls
        self.real = real
        self.origin = origin

    @staticmethod
    @kind(tuple)
    def existing(t: Tracer, real: tuple[Any, ...], origin: Origin) -> TupleValue:
        """Returns the value of a tuple from before the call."""
        t.guards.add(origin, "type", tuple)
        t.guard_length(origin, tuple, len(real))
        items = [t.wrap(item, origin.child("item", i)) for i, item in enumerate(real)]
        return TupleValue(items, tuple, real, origin)

    def constant(self) -> Any:
        items = [plain(item) for item in self.items]
        return tuple(items) if self.cls is tuple else make_tuple(self.cls, items)

    def like(self, items: list[Value]) -> SequenceValue:
        return TupleValue(items, torch.Size if self.cls is torch.Size else tuple)

    def iterate(self, t: Tracer) -> Value:
        return SequenceIterator(self, self.items)

    def copied(self, copier: Copier) -> Value:
        items = [copier.part(item) for item in self.items]
        if id(self) in copier.memo:  # it contains itself, through one of its items
            return copier.memo[id(self)]
        pairs = zip(items, self.items, strict=True)
        unchanged = all(new is copier.t.look(old) for new, old in pairs)
        if self.cls is not tuple:
            copier.check_class(self)
        elif unchanged or not copier.deep:
            return self
        return TupleValue(items, self.cls)

    def key(self, t: Tracer) -> Any:
        return tuple(t.look(item).key(t) for item in self.items)

    def getattr(self, t: Tracer, name: str) -> Value:
        fields = getattr(self.cls, "_fields", None)
        if fields is not None and name in fields:
            return t.look(self.items[fields.index(name)])
        if self.cls.__module__ == "torch.return_types" and name in structure_fields(self.cls):
            return t.look(self.items[structure_fields(self.cls).index(name)])
        return t.instance_attribute(self, name)

    def rebuild(self, r: Rebuilder) -> None:
        if self.cls is tuple:
            r.load_tuple(self.items)
        else:
            r.call(make_tuple, self.cls, self.items)


NAMEDTUPLE_METHODS = frozenset(
    {
        "__new__",
        "__repr__",
        "__getnewargs__",
        "__init_subclass__",
        "__class_getitem__",
        "__replace__",
    }
)


def is_plain_tuple_class(cls: type) -> bool:
    """Whether instances behave like tuples with names for their items, and nothing more."""
    if cls is torch.Size or cls.__module__ == "torch.return_types":
        return True
    special = {
        name
        for name, value in vars(cls).items()
        if name.startswith("__") and isinstance(value, FunctionType)
    }
    return hasattr(cls, "_fields") and cls.__bases__ == (tuple,) and special <= NAMEDTUPLE_METHODS


def make_tuple(cls: type, items: Any) -> Any:
    """Returns a tuple of class `cls`: namedtuples are made with `_make`, the others by calling the class."""
    return cls._make(items) if hasattr(cls, "_make") else cls(items)  # type: ignore[attr-defined]


def structure_fields(cls: type) -> list[str]:
    return [
        name for name, member in vars(cls).items() if type(member).__name__ == "member_descriptor"
    ]


@container(list)
class ListValue(SequenceValue):
    """A list. `unseen`: items appended to a list from before the call of which nothing else is known, not
    even its length."""

    mutable = ("_items", "unseen", "reshaped")

    def __init__(self, items: list[Value]) -> None:
        self._items: list[Value] | None = items
        self._t: Tracer | None = None
        self.unseen: list[Value] = []
        self.reshaped = 0  # how many times items came, went or moved, if its iterators then fail

    @classmethod
    def existing(cls, t: Tracer, real: Any, origin: Origin) -> Self:
        """Returns the value of a list from before the call; its type is guarded elsewhere."""
        value = cls([])
        value._items, value._t, value.real, value.origin = None, t, real, origin
        return value

    @property
    def items(self) -> list[Value]:  # type: ignore[override]
        if self._items is None:
            t, origin = self._t, self.origin
            read = list(self.native.__iter__(self.real))  # type: ignore[attr-defined]
            t.guard_length(origin, type(self.real), len(read))
            is_plain = type(self.real).__getitem__ is self.native.__getitem__  # type: ignore[attr-defined]
            kind = "item" if is_plain else "base_item"
            items = [t.wrap(item, origin.child(kind, i)) for i, item in enumerate(read)]
            self._items = items + self.unseen
        return self._items

    @items.setter
    def items(self, items: list[Value]) -> None:
        self._items = items

    def replace(self, t: Tracer, items: list[Value]) -> None:
        """Sets its items."""
        t.change(self)
        self.items = items

    def operate_in_place(self, t: Tracer, fn: Any, other: Value) -> bool:
        if fn is operator.add:
            self.extend(t, other)
        elif fn is operator.mul:
            self.replace(t, self.repeated(t, other).items)
        return fn in (operator.add, operator.mul)

    def copied(self, copier: Copier) -> Value:
        result = copier.memo[id(self)] = self.like([])
        result.items = [copier.part(item) for item in self.items]
        return result

    def append(self, t: Tracer, item: Value) -> None:
        t.change(self)
        (self.unseen if self._items is None else self._items).append(item)

    def extend(self, t: Tracer, source: Value) -> None:
        source = t.look(source)
        iterator = source.iterate(t)
        source.length_hint(t)
        t.change(self)
        for batch in t.batches(iterator):
            if self._items is None:
                self.unseen.extend(batch)
            else:
                self._items.extend(batch)

    def type(self) -> type:
        return self.native

    def constant(self) -> Any:
        return [plain(item) for item in self.items]

    def like(self, items: list[Value]) -> SequenceValue:
        return ListValue(items)

    def iterate(self, t: Tracer) -> Value:
        return SequenceIterator(self, None)

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        t.change(self)
        if isinstance(key, SliceValue):
            items = t.sized_items(value)
            try:
                self.items[key.constant()] = items
            except ValueError as error:
                t.raise_(ValueError, *error.args)
            return
        index = t.index(key)
        if not -len(self.items) <= index < len(self.items):
            t.raise_(IndexError, "list assignment index out of range")
        self.items[index] = value

    def delitem(self, t: Tracer, key: Value) -> None:
        t.change(self)
        place = key.constant() if isinstance(key, SliceValue) else t.index(key)
        try:
            del self.items[place]
        except IndexError:
            t.raise_(IndexError, "list assignment index out of range")

    def effects(self, t: Tracer) -> list[Effect]:
        if self._items is None:
            return [Effect(self, list.extend, self.unseen)]
        is_as_long = len(self.items) == len(self.real)
        all_kept = len(self.items) >= len(self.real) and all(
            holds(t, new, before, self.origin.child("item", n))
            for n, (new, before) in enumerate(zip(self.items, self.real, strict=False))
        )
        if all_kept and is_as_long:
            return []
        if not all_kept:
            note_end_of_items(t, self.real, self.origin)
        # A list takes a slice, whatever was done with it.
        in_place = is_as_long and not self.reshaped and not isinstance(self.real, list)
        return [Effect(self, set_items if in_place else replace_items, self.items)]

    def rebuild(self, r: Rebuilder) -> None:
        r.code.emit("BUILD_LIST", 0)
        r.keep(self)
        if self.items:
            r.load_tuple(self.items)
            r.code.emit("LIST_EXTEND", 1)


def replace_items(target: Any, items: tuple[Any, ...]) -> None:
    """Called from new code: replaces the items without calling methods of a subclass."""
    if isinstance(target, list):
        list.__setitem__(target, slice(None), items)
    else:
        target.clear()
        target.extend(items)


def set_items(target: Any, items: tuple[Any, ...]) -> None:
    """Called from new code: writes each item in its place, so that iterators over `target` go on."""
    for place, item in enumerate(items):
        target[place] = item


@kind(list)
def _existing_list(t: Tracer, real: list[Any], origin: Origin) -> Value:
    t.guards.add(origin, "type", list)
    if t.is_opaque_list(origin):
        return OpaqueValue(real, origin)
    return ListValue.existing(t, real, origin)


@container(slice)
class SliceValue(Value):
    cls = slice

    def __init__(
        self, start: Value, stop: Value, step: Value, real: Any = None, origin: Origin | None = None
    ) -> None:
        self.bounds = [start, stop, step]
        self.real = real
        self.origin = origin

    def parts(self) -> list[Value]:
        return self.bounds

    def constant(self) -> Any:
        return slice(*(plain(bound) for bound in self.bounds))

    def operator(self, t: Tracer, fn: Any, other: Value) -> Value | None:
        if not isinstance(other, SliceValue):
            return None
        return TupleValue(self.bounds).operator(t, fn, TupleValue(other.bounds))

    def getattr(self, t: Tracer, name: str) -> Value:
        names = ("start", "stop", "step")
        return (
            t.look(self.bounds[names.index(name)])
            if name in names
            else t.instance_attribute(self, name)
        )

    def rebuild(self, r: Rebuilder) -> None:
        r.load_all(self.bounds)
        r.code.emit("BUILD_SLICE", 3)


def plain(value: Value) -> Any:
    """Returns the Python object of a constant, which may be passed to C functions; `value` must have been
    looked at."""
    realized = getattr(value, "realized", value)
    if realized is None:
        raise NotConstant(value)
    known = realized.constant()
    of = type(known)
    if of in LITERALS:
        return known
    if (isinstance(realized, ConstValue) or isinstance(known, type)) and has_programs_methods(of):
        raise NotConstant(value)
    return known


def plain_inside(t: Tracer, value: Value) -> Any:
    """Looks at a constant and at a tuple's items, and returns the Python object."""
    value = t.look(value)
    for item in value.items if isinstance(value, TupleValue) else ():
        t.look(item)
    return plain(value)
