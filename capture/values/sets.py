"""Sets and frozensets.

The order in which a set gives its items follows from their hashes and from all that was done to it.  `twin` is a real set of the same keys to
which the same was done, as long as the keys are the program's own objects; from before the call, the guards say the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frameloom.capture.fake import Fake
from frameloom.capture.values.base import Value
from frameloom.capture.values.container import plain
from frameloom.capture.values.dictionary import DictValue, ViewValue
from frameloom.capture.values.iterator import SequenceIterator
from frameloom.capture.values.token import tell_apart
from frameloom.capture.values.user_key import check_keys
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.origin import Origin
    from frameloom.capture.rebuild import Rebuilder
    from frameloom.capture.tracer import Tracer


class SetValue(Value):
    """`entries`: key -> item.  `before`: what a set from before the call held."""

    def __init__(self, cls: type = set) -> None:
        self.entries: dict[Any, Value] = {}
        self.cls = cls
        self.twin: Any = cls()
        self.before: dict[Any, Value] | None = None

    @staticmethod
    def existing(t: Tracer, real: Any, origin: Origin) -> SetValue | None:
        """A set from before the call; None if the guards cannot tell its items."""
        members = tuple(real)
        if not all(is_guardable(member) for member in members):
            return None
        value = SetValue(type(real))
        value.real, value.origin = real, origin
        t.note_length(origin, set, len(members))
        t.guards.add(origin, "members", members)
        for member in members:
            item = t.from_python(member)
            value.entries[item.key(t)] = item
        value.before, value.twin = dict(value.entries), None
        return value

    def type(self) -> type:
        return self.cls

    def parts(self) -> list[Value]:
        return list(self.entries.values())

    def constant(self) -> Any:
        return self.cls(plain(item) for item in self.entries.values())

    # --- changes
    def add(self, t: Tracer, item: Value) -> None:
        item = t.look(item)
        key = item.key(t)
        t.change(self)
        self.put(t, key, item)

    def put(self, t: Tracer, key: Any, item: Value) -> None:
        tell_apart(t, key, self.entries)
        if key in self.entries:
            return
        self.entries[key] = item
        if self.twin is not None and is_own(key):
            self.twin.add(key)
        else:
            self.twin = None

    def update(self, t: Tracer, source: Value) -> None:
        source, twin = t.look(source), self.twin
        items = t.list_items(source)
        t.change(self)
        self.twin = None  # what follows is done to it in one go
        for item in items:
            item = t.look(item)
            self.put(t, item.key(t), item)
        if twin is not None and all(map(is_own, self.entries)):
            other = source.twin if isinstance(source, SetValue) else None
            twin.update(other if other is not None else [t.look(item).key(t) for item in items])
            self.twin = twin

    def remove(self, t: Tracer, key: Any) -> None:
        t.change(self)
        del self.entries[key]
        if self.twin is not None:
            self.twin.remove(key)

    def pop(self, t: Tracer) -> Value:
        if self.twin is None and len(self.entries) > 1:
            raise Break("set_order", "set.pop()")
        t.change(self)
        key = self.twin.pop() if self.twin is not None else next(iter(self.entries))
        return self.entries.pop(key)

    def become(self, t: Tracer, other: SetValue) -> None:
        """Take over the content of another one."""
        t.change(self)
        self.entries, self.twin = dict(other.entries), other.twin

    def clear(self, t: Tracer) -> None:
        t.change(self)
        self.entries, self.twin = {}, set()

    def snapshot(self) -> Any:
        return dict(self.entries), None if self.twin is None else self.twin.copy()

    def restore(self, saved: Any) -> None:
        self.entries, self.twin = saved

    # --- questions
    def truth(self, t: Tracer) -> bool:
        return bool(self.entries)

    def length(self, t: Tracer) -> int:
        return len(self.entries)

    def contains(self, t: Tracer, item: Value) -> bool:
        if isinstance(item, SetValue) and item.cls is set:
            return frozenset(item.entries) in self.entries
        key = item.key(t)
        tell_apart(t, key, self.entries)
        return key in self.entries

    def order(self) -> list[Value]:
        """The items as Python would iterate over them."""
        if len(self.entries) <= 1 or (self.before is not None and self.entries == self.before):
            return list(self.entries.values())
        if self.twin is None:
            raise Break("set_order", "iteration over a set of objects")
        return [self.entries[key] for key in self.twin]

    def iterate(self, t: Tracer) -> Value:
        return SetIterator(self, self.order())

    def key(self, t: Tracer) -> Any:
        if self.cls is not frozenset:
            t.raise_(TypeError, "unhashable type: 'set'")
        return frozenset(self.entries)

    def getattr(self, t: Tracer, name: str) -> Value:
        return t.instance_attribute(self, name)

    def check_rebuild(self) -> None:
        check_keys(self.entries)

    def rebuild(self, r: Rebuilder) -> None:
        if self.cls is frozenset:
            r.code.start_call(frozenset)
            r.load_all(self.parts())
            r.code.emit("BUILD_TUPLE", len(self.entries))
            r.code.call(1)
            return
        r.code.emit("BUILD_SET", 0)
        r.keep(self)
        if self.entries:
            r.load_all(self.parts())
            r.code.emit("BUILD_TUPLE", len(self.entries))
            r.code.emit("SET_UPDATE", 1)


class SetIterator(SequenceIterator):
    def step(self, t: Tracer) -> Value | None:
        if not self.ended and len(self.over.parts()) != len(self.items or ()):
            t.raise_(RuntimeError, "Set changed size during iteration")
        return super().step(t)

    def rebuild(self, r: Rebuilder) -> None:
        if not self.ended and len(self.over.parts()) != len(self.items or ()):
            raise Break("opaque_iterable", "a set that changed during iteration")
        super().rebuild(r)


def as_set(t: Tracer, value: Value) -> SetValue | None:
    """A set, or the view of a dictionary's keys or items as one."""
    if isinstance(value, SetValue):
        return value
    if not isinstance(value, ViewValue) or value.kind == "values":
        return None
    result = SetValue()
    for item in t.list_items(value):
        item = t.look(item)
        result.put(t, item.key(t), item)
    if result.twin is not None:
        result.twin = dict.fromkeys(result.entries).keys()
    return result


def set_of(t: Tracer, cls: type, items: list[Value]) -> SetValue:
    result = SetValue(cls)
    if cls is frozenset:  # made in one go
        for item in items:
            item = t.look(item)
            result.entries.setdefault(item.key(t), item)
        result.twin = frozenset(result.entries) if all(map(is_own, result.entries)) else None
        return result
    for item in items:
        item = t.look(item)
        result.put(t, item.key(t), item)
    return result


def is_own(key: Any) -> bool:
    """Whether a key is the program's own object, with its hash, and not a stand-in."""
    if isinstance(key, tuple | frozenset):
        return all(map(is_own, key))
    return not isinstance(key, Value | Fake) and not hasattr(key, "stands_for")


def is_guardable(member: Any) -> bool:
    """Whether guards can compare it without running Python code: plain constants by value, others by identity."""
    if type(member) is tuple:
        return all(map(is_guardable, member))
    return type(member) in CONSTANTS or type(member).__hash__ in (object.__hash__, TENSOR_HASH)


def _tensor_hash() -> Any:
    import torch

    return torch.Tensor.__hash__


TENSOR_HASH = _tensor_hash()
CONSTANTS = frozenset({str, int, bool, bytes, float, complex, type(None), type(Ellipsis)})

__all__ = ["DictValue", "SetIterator", "SetValue", "as_set", "set_of"]
