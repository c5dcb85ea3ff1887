"""Dictionaries, their views, and the globals of a function.

A dictionary from before the call is read key by key, each with its own guard; `written` has what was
written since then. Only operations that need the order or the number of keys guard all keys.
"""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.values.base import Effect, Value
from frameloom.capture.values.const import NONE, ConstValue, boolean
from frameloom.capture.values.containers.container import TupleValue, plain
from frameloom.capture.values.containers.iterator import SequenceIterator
from frameloom.capture.values.identity import (
    has_known_hash,
    is_compared_by_identity,
    is_own,
    pin_key,
)
from frameloom.capture.values.kinds import container, kind
from frameloom.capture.values.token import tell_apart
from frameloom.capture.values.unchanged import ABSENT, is_unchanged, note_end
from frameloom.capture.values.user_key import check_keys
from frameloom.errors import Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.base import Copier


class Deleted(Value):
    """Marks a key that existed and was deleted."""


DELETED = Deleted()


@container(dict)
class DictValue(Value):
    """A dictionary. `real` is the dictionary before the call (None for a new one); `written` maps key -> (key
    value, value) since then, in order."""

    mutable = ("written", "moved", "reshaped", "grown")

    def __init__(self, real: Any = None, origin: Origin | None = None, cls: type = dict) -> None:
        self.real = real
        self.origin = origin
        self.cls = cls
        self.written: dict[Any, tuple[Value, Value]] = {}
        self.reshaped = 0  # how many times a key was added or removed
        self.grown = 0  # number of keys added minus number removed
        self._plain_keys: bool | None = None
        self.moved: set[Any] = (
            set()
        )  # keys of `real` that were deleted and added again: they are last now

    def describe(self) -> str:
        return self.cls.__name__

    def empty(self) -> DictValue:
        """Returns a new, empty one of its class."""
        return DictValue(cls=self.cls)

    def copied(self, copier: Copier) -> Value:
        result = copier.memo[id(self)] = self.empty()
        for key, item in list(self.entries(copier.t).values()):
            result.setitem(copier.t, copier.part(key), copier.part(item))
        return result

    def operator(self, t: Tracer, fn: Any, other: Value) -> Value | None:
        if fn not in (operator.eq, operator.ne) or not isinstance(other, DictValue):
            return None
        return boolean(self._equals(t, other) is (fn is operator.eq))

    def _equals(self, t: Tracer, other: DictValue) -> bool:
        ours, theirs = self.entries(t), other.entries(t)
        are_ordered = all(issubclass(table.cls, OrderedDict) for table in (self, other))
        if ours.keys() != theirs.keys() or (are_ordered and list(ours) != list(theirs)):
            return False
        return all(t.same_or_equal(value, theirs[index][1]) for index, (_, value) in ours.items())

    # --- reading
    def get(self, t: Tracer, key: Value) -> Value | None:
        """Returns the value of `key`, None if there is none."""
        return self.get_at(t, key.key(t))

    def get_at(self, t: Tracer, index: Any) -> Value | None:
        tell_apart(t, index, self.written)
        entry = self.written.get(index)
        if entry is not None:
            return None if entry[1] is DELETED else t.look(entry[1])
        if self.real is None:
            return None
        value = self._lazy(t, index)
        return None if value is None else t.look(value)

    def _lazy(self, t: Tracer, index: Any) -> Value | None:
        index = pin_key(t, index)
        if not (guardable(index) or _is_tensor(index)) or not self._keys_are_plain():
            raise Break("dictionary_key", f"a key of {self.describe()}")
        if dict.__contains__(self.real, index):
            return t.wrap(dict.__getitem__(self.real, index), self.place(t, index))
        if is_own(index):
            t.guards.add(self.origin, "no_key", index)
        return None

    def _is_old(self, t: Tracer, index: Any) -> bool:
        """Whether the key existed before the call."""
        return self.real is not None and dict.__contains__(self.real, pin_key(t, index))

    def place(self, t: Tracer, index: Any) -> Origin:
        """Returns the source of the value that a key had before the call."""
        kind = (
            "key"
            if type(self.real).__getitem__ in (dict.__getitem__, OrderedDict.__getitem__)
            else "base_key"
        )
        return self.origin.child(kind, pin_key(t, index))

    def _keys_are_plain(self) -> bool:
        """Whether looking up a key runs no Python code."""
        if self._plain_keys is None:
            self._plain_keys = all(
                type(key) in PLAIN_KEYS or is_compared_by_identity(key) or _is_tensor(key)
                for key in self.real
            )
        return self._plain_keys

    def entries(self, t: Tracer) -> dict[Any, tuple[Value, Value]]:
        """Returns all entries in order: key -> (key value, value, possibly lazy)."""
        result: dict[Any, tuple[Value, Value]] = {}
        if self.real is not None:
            keys = tuple(self.real)
            # Guards would keep a key with a finalizer.
            if not all(guardable(key) and _capture.ends_silently(key) for key in keys):
                raise Break("dictionary_key", f"all keys of {self.describe()}")
            if keys != tuple(dict.keys(self.real)) and type(self.real) is not OrderedDict:
                raise Break(
                    "opaque_iterable", f"iteration over {self.describe()} with an order of its own"
                )
            t.note_length(self.origin, dict, len(keys))
            t.guards.add(self.origin, "keys", t.pin(self.origin, keys))
            for real in keys:
                key = t.from_python(real)
                index = key.key(t)
                if index not in self.written or (
                    index not in self.moved and self.written[index][1] is not DELETED
                ):
                    written = self.written.get(index)
                    value = self._lazy(t, real) if written is None else written[1]
                    assert value is not None
                    result[index] = (key, value)
        for key, entry in self.written.items():
            if entry[1] is not DELETED and key not in result:
                result[key] = entry
        return result

    def getitem(self, t: Tracer, key: Value) -> Value:
        value = self.get(t, key)
        return self.missing(t, key) if value is None else value

    def missing(self, t: Tracer, key: Value) -> Value:
        return t.raise_value(KeyError, [key])

    def contains(self, t: Tracer, item: Value) -> bool:
        return self.get(t, item) is not None

    def length(self, t: Tracer) -> int:
        if self.real is not None and self.origin is not None and not self.written:
            t.guard_length(self.origin, dict, len(self.real))
            return len(self.real)
        return len(self.entries(t))

    def iterate(self, t: Tracer) -> Value:
        return DictIterator(self, self, self.entries(t), "keys")

    def reverse(self, t: Tracer) -> Value:
        return DictIterator(self, self, self.entries(t), "keys").backwards()

    def constant(self) -> Any:
        if self.real is not None or self.cls not in (dict, OrderedDict):
            return super().constant()
        return self.cls(self._items())

    def _items(self) -> dict[Any, Any]:
        pairs = self.written.values()
        return {plain(key): plain(value) for key, value in pairs if value is not DELETED}

    # --- writing
    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        self.set_at(t, key.key(t), key, value)

    def set_at(self, t: Tracer, index: Any, key: Value, value: Value) -> None:
        tell_apart(t, index, self.written)
        t.change(self)
        before = self.written.get(index)
        if before is not None and before[1] is DELETED:
            if self._is_old(t, index):
                self.moved.add(index)
            del self.written[index]  # it becomes the last key again
            before = None
        is_new = before is None
        if before is None and self.real is not None and index not in self.moved:
            is_new = self._lazy(t, index) is None  # a new key comes last
        self.reshaped += is_new
        self.grown += is_new
        self.written[index] = (key if before is None else before[0], value)

    def delitem(self, t: Tracer, key: Value) -> None:
        index = key.key(t)
        if self.get_at(t, index) is None:
            t.raise_value(KeyError, [key])
        self.delete_at(t, index, key)

    def delete_at(self, t: Tracer, index: Any, key: Value) -> None:
        t.change(self)
        self.reshaped += 1
        self.grown -= 1
        if self._is_old(t, index):
            t.guards.reaches(self.place(t, index))
            self.moved.discard(index)
            self.written[index] = (key, DELETED)
        else:
            del self.written[index]

    def clear(self, t: Tracer) -> None:
        for index, (key, _) in list(self.entries(t).items()):
            self.delete_at(t, index, key)

    def effects(self, t: Tracer) -> list[Effect]:
        # Methods of a subclass are not called.
        base = OrderedDict if issubclass(self.cls, OrderedDict) else dict
        effects = [Effect(self, base.__delitem__, self.written[key][0]) for key in self.moved]
        for index, (key, new) in self.written.items():
            before = dict.get(self.real, pin_key(t, index), ABSENT)
            if new is DELETED or index in self.moved:
                note_end(t, before, self.place(t, index))
            if new is DELETED:
                effects.append(Effect(self, base.__delitem__, key))
            elif index in self.moved or not is_unchanged(t, new, before, self.place(t, index)):
                effects.append(Effect(self, base.__setitem__, key, new))
        return effects

    # --- the end of a capture
    def parts(self) -> list[Value]:
        return [part for entry in self.written.values() for part in entry if part is not DELETED]

    def check_rebuild(self) -> None:
        check_keys(self.written)

    def rebuild_empty(self, r: Rebuilder) -> None:
        if self.cls is dict:
            r.code.emit("BUILD_MAP", 0)
        else:
            r.call(self.cls)

    def rebuild(self, r: Rebuilder) -> None:
        self.rebuild_empty(r)
        r.keep(self)
        for key, value in self.written.values():
            r.code.emit("COPY", 1)
            r.load(value)
            r.code.emit("SWAP", 2)
            r.load(key)
            r.code.emit("STORE_SUBSCR")


@kind(dict, OrderedDict)
def _existing(t: Tracer, real: dict[Any, Any], origin: Origin) -> DictValue:
    t.guards.add(origin, "type", type(real))
    return DictValue(real, origin, type(real))


class DefaultDictValue(DictValue):
    """A collections.defaultdict."""

    factory: Value = NONE

    @staticmethod
    @kind(defaultdict)
    def existing(t: Tracer, real: Any, origin: Origin) -> DefaultDictValue:
        """Returns the value of a defaultdict from before the call."""
        t.guards.add(origin, "type", type(real))
        value = DefaultDictValue(real, origin, type(real))
        value.factory = t.wrap(real.default_factory, origin.child("attr", "default_factory"))
        return value

    def missing(self, t: Tracer, key: Value, holder: Value | None = None) -> Value:
        """Adds and returns the default. `holder`: the instance of a subclass, whose attribute and
        `__setitem__` are used."""
        factory = t.look(self.factory if holder is None else holder.getattr(t, "default_factory"))
        if isinstance(factory, ConstValue):
            return super().missing(t, key)
        value = t.call(factory, [], {})
        (holder or self).setitem(t, key, value)
        return t.look(value)

    def constant(self) -> Any:
        if self.real is not None or self.cls is not defaultdict:
            return super().constant()
        return defaultdict(plain(self.factory), self._items())

    def empty(self) -> DefaultDictValue:
        """Returns an empty one with the same factory."""
        result = DefaultDictValue(cls=defaultdict)
        result.factory = self.factory
        return result

    def getattr(self, t: Tracer, name: str) -> Value:
        return t.look(self.factory) if name == "default_factory" else super().getattr(t, name)

    def parts(self) -> list[Value]:
        return [self.factory, *super().parts()]

    def rebuild_empty(self, r: Rebuilder) -> None:
        r.call(defaultdict, self.factory)


@container(type({}.keys()), type({}.values()), type({}.items()))
class ViewValue(Value):
    """keys(), values() and items() of a dictionary."""

    def __init__(self, over: DictValue, kind: str) -> None:
        self.over = over
        self.kind = kind

    def type(self) -> type:
        return type(getattr({}, self.kind)())

    def parts(self) -> list[Value]:
        return [self.over]

    def length(self, t: Tracer) -> int:
        return self.over.length(t)

    def contains(self, t: Tracer, item: Value) -> bool:
        if self.kind == "keys":
            return self.over.contains(t, item)
        return t.tuple_of(self).contains(t, item)

    def iterate(self, t: Tracer) -> Value:
        return DictIterator(self, self.over, self.over.entries(t), self.kind)

    def reverse(self, t: Tracer) -> Value:
        return DictIterator(self, self.over, self.over.entries(t), self.kind).backwards()

    def rebuild(self, r: Rebuilder) -> None:
        r.load(self.over)
        r.code.call_const_after(VIEWS[self.kind])


class DictIterator(SequenceIterator):
    """Iterates over a dictionary or a view of it, which must not change its size meanwhile."""

    def __init__(
        self, over: Value, table: DictValue, entries: dict[Any, tuple[Value, Value]], kind: str
    ) -> None:
        super().__init__(over, [key for key, _ in entries.values()])
        self.table, self.entries, self.kind = table, entries, kind
        self.order = [*entries]
        self.shape = table.reshaped, table.grown

    def backwards(self) -> DictIterator:
        """Turns the iterator of `iter` into that of `reversed`."""
        self.items, self.order, self.make = self.items[::-1], self.order[::-1], reversed
        return self

    def _item(self, t: Tracer) -> Value | None:
        key = super()._item(t)
        if key is None or self.kind == "keys":
            return key
        index = self.order[self.position]
        _, value = self.table.written.get(index, self.entries[index])  # the current value
        return value if self.kind == "values" else TupleValue([key, value])

    def type(self) -> type:
        over, source = self.over, self.table.cls()
        return type(self.make(getattr(source, over.kind)() if isinstance(over, ViewValue) else source))  # fmt: skip

    def fault(self) -> str | None:
        reshaped, grown = self.shape
        if self.ended:
            return None
        if self.table.grown != grown:
            return "dictionary changed size during iteration"
        if self.table.reshaped == reshaped:
            return None
        # Python's iterator continues at its place in the table, and raises if it finds more keys than before.
        raise Skip(f"keys of a {self.table.describe()} come and go while it is iterated over")


VIEWS: dict[str, Any] = {"keys": dict.keys, "values": dict.values, "items": dict.items}


PLAIN_KEYS = frozenset({str, int, bool, bytes, float, type(None), tuple, complex})


def guardable(key: Any) -> bool:
    """Whether the guard tree can look up the key without running Python: plain keys by value, others by
    identity. It keeps the hash."""
    if type(key) is tuple:
        return all(map(guardable, key))
    return key is None or type(key) in (str, int, bool, bytes) or has_known_hash(key)


def _is_tensor(key: Any) -> bool:
    """Whether the key is a tensor, which is hashed by identity; an optimizer's state has parameters as
    keys."""
    return type(key) in (torch.Tensor, torch.nn.Parameter)
