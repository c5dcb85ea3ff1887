"""Sets and frozensets.

The iteration order of a set depends on the hashes of its items and on all earlier operations on it. `twin`
is a real set with the same keys on which the same operations were done; it exists while the keys are the
program's own objects. For a set from before the call, guards check the order.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture import _capture
from frameloom.capture.bytecode.opcodes import COMPARISONS
from frameloom.capture.guards.source import FRESH_KINDS
from frameloom.capture.values.base import Effect, NotConstant, Value
from frameloom.capture.values.const import boolean
from frameloom.capture.values.containers.container import plain
from frameloom.capture.values.containers.dictionary import DictValue, ViewValue
from frameloom.capture.values.containers.iterator import SequenceIterator
from frameloom.capture.values.identity import has_known_hash, is_own
from frameloom.capture.values.kinds import container, kind
from frameloom.capture.values.opaque import OpaqueValue
from frameloom.capture.values.token import tell_apart
from frameloom.capture.values.user_key import check_keys
from frameloom.errors import Avoid, Break, Skip

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder
    from frameloom.capture.values.base import Copier


@container(set, frozenset)
class SetValue(Value):
    """A set. `entries`: key -> item. `placed`: the same for all items that it ever had, since removed ones
    affect where later ones are stored. `before`: the items of a set from before the call."""

    mutable = ("entries", "placed", "twin")

    def __init__(self, cls: type = set) -> None:
        self.entries: dict[Any, Value] = {}
        self.placed: dict[Any, Value] = {}
        self.cls = cls
        self.twin: Any = cls()
        self.before: dict[Any, Value] | None = None
        self.site: Any = None  # where it was last changed

    @staticmethod
    def existing(t: Tracer, real: Any, origin: Origin) -> SetValue | None:
        """Returns the value of a set from before the call; None if guards cannot compare its items."""
        members = tuple(real)
        if not all(is_guardable(m) and _capture.ends_silently(m) for m in members):
            return None  # guards would keep a member with a finalizer
        value = SetValue(type(real))
        value.real, value.origin = real, origin
        t.note_length(origin, set, len(members))
        t.guards.add(origin, "members", members)
        for member in members:
            item = t.from_python(member)
            value.entries[item.key(t)] = item
        value.before, value.twin = dict(value.entries), None
        return value

    def parts(self) -> list[Value]:
        return list(self.entries.values())

    def constant(self) -> Any:
        """Returns a real set in the order of the program's set; it must not be changed."""
        items, model = [plain(item) for item in self.entries.values()], self.model()
        if model is None and len(items) > 1:
            raise NotConstant(self)  # the order is unknown
        return model if type(model) is self.cls else self.cls(items)

    # --- changes
    def add(self, t: Tracer, item: Value) -> None:
        item = t.look(item)
        key = item.key(t)
        self.note_site(t)
        t.change(self)
        self.put(t, key, item)

    def put(self, t: Tracer, key: Any, item: Value) -> None:
        tell_apart(t, key, self.entries)
        if key in self.entries:
            return
        self.entries[key] = item
        self.placed.setdefault(key, item)
        if self.twin is not None and is_own(key):
            self.twin.add(key)
        else:
            self.twin = None

    def update(self, t: Tracer, source: Value) -> None:
        source = t.look(source)
        self.note_site(t)
        t.change(self)
        twin = self.twin
        if is_whole := isinstance(source, SetValue | DictValue):
            self.twin = None  # CPython copies these as a whole, which may give another order
        for batch in t.batches(source):
            for item in batch:
                item = t.look(item)
                self.put(t, item.key(t), item)
        if is_whole and twin is not None and (model := _model(t, source)) is not None:
            twin.update(model)
            self.twin = twin

    def note_site(self, t: Tracer) -> None:
        """Notes the current place before a change: filling a new set may not give the order that the items
        have then."""
        self.site = t.site_or(Break("set_order", "a set that cannot be rebuilt in its order"))

    def remove(self, t: Tracer, key: Any) -> None:
        self.note_site(t)
        t.change(self)
        del self.entries[key]
        if self.twin is not None:
            self.twin.remove(key)

    def pop(self, t: Tracer) -> Value:
        if self.twin is None and len(self.entries) > 1:
            raise Break("set_order", "set.pop()")
        self.note_site(t)
        t.change(self)
        key = self.twin.pop() if self.twin is not None else next(iter(self.entries))
        return self.entries.pop(key)

    def become(self, t: Tracer, other: SetValue) -> None:
        """Takes over the content of another set."""
        t.change(self)
        self.entries, self.placed = dict(other.entries), dict(other.placed)
        self.twin, self.site = other.twin, other.site

    def clear(self, t: Tracer) -> None:
        t.change(self)
        self.entries, self.placed, self.twin = {}, {}, set()

    def effects(self, t: Tracer) -> list[Effect]:
        gone = [item for key, item in self.before.items() if key not in self.entries]
        new = [item for key, item in self.entries.items() if key not in self.before]
        effects = [Effect(self, set.difference_update, gone)] if gone else []
        return [*effects, Effect(self, add_members, new)] if new else effects

    # --- reading
    def length(self, t: Tracer) -> int:
        return len(self.entries)

    def contains(self, t: Tracer, item: Value) -> bool:
        if isinstance(item, SetValue) and item.cls is set:
            return frozenset(item.entries) in self.entries
        key = item.key(t)
        tell_apart(t, key, self.entries)
        return key in self.entries

    def order(self) -> list[Value]:
        """Returns the items in Python's iteration order."""
        if len(self.entries) <= 1 or (self.before is not None and self.entries == self.before):
            return list(self.entries.values())
        if self.twin is None:
            raise Break("set_order", "iteration over a set of objects")
        return [self.entries[key] for key in self.twin]

    def model(self) -> Any:
        """Returns a real set that is stored like this one; None if there is none."""
        if self.twin is None and self.entries == self.before and all(map(is_own, self.entries)):
            return self.real
        return self.twin

    def changeable_model(self) -> Any:
        """Returns `model`, to be changed in the same way as this set."""
        model = self.model()
        if model is None or model is self.twin:
            return model
        copy = set(model)
        return copy if list(copy) == list(model) else None

    def operator(self, t: Tracer, fn: Any, other: Value) -> Value | None:
        right = as_set(t, other)
        if right is None:
            return None
        # With a view, it is the view's own operator.
        return operated(t, fn, self, right, set if isinstance(other, ViewValue) else None)

    def operate_in_place(self, t: Tracer, fn: Any, other: Value) -> bool:
        is_changed = self.cls is set and fn in SET_ALGEBRA and isinstance(other, SetValue)
        if is_changed:
            tell_sets_apart(t, self, other)
            combine_in_place(t, fn, self, other)
        return is_changed

    def copied(self, copier: Copier) -> Value:
        if self.cls is frozenset and not copier.deep:
            return self
        return set_of(copier.t, self.cls, [copier.part(item) for item in self.order()])

    def iterate(self, t: Tracer) -> Value:
        return SetIterator(self, self.order())

    def key(self, t: Tracer) -> Any:
        if self.cls is not frozenset:
            t.raise_(TypeError, "unhashable type: 'set'")
        return frozenset(self.entries)

    def check_rebuild(self) -> None:
        check_keys(self.entries)
        if self.site is not None and not any(self._fillings()):
            raise Avoid(self.site)

    def rebuild(self, r: Rebuilder) -> None:
        if self.cls is frozenset:
            self._rebuild_frozen(r)
            return
        r.code.emit("BUILD_SET", 0)
        r.keep(self)
        if self.entries:
            items, source, gone = next(self._fillings(), (self.parts(), tuple, ()))
            if items is None:
                r.code.load_const(source)
            else:
                r.load_tuple(items)
            if source is AT_ONCE:
                r.code.call_const_after(source)
            r.code.emit("SET_UPDATE", 1)
            if gone:
                r.code.emit("COPY", 1)
                r.code.call_const_after(set.difference_update, [gone])
                r.code.emit("POP_TOP")

    def _rebuild_frozen(self, r: Rebuilder) -> None:
        if type(self.twin) is frozenset:
            r.code.load_const(self.twin)
            return
        r.call(frozenset, self.parts())

    def _fillings(self) -> Iterator[tuple[list[Value] | None, Any, tuple[Any, ...]]]:
        """Yields the ways to fill a new set so that it has the iteration order of this one: items (or None),
        the type that passes them (or a constant), and what must be removed again."""
        if self.twin is None:
            yield self.parts(), tuple, ()
            return
        wanted = list(self.twin)
        values = self.placed | self.entries
        gone = tuple(key for key in self.placed if key not in self.entries)
        for keys, without in ((list(self.entries), ()), (wanted, ()), (list(values), gone)):
            for source in (tuple, AT_ONCE):
                if _filled(source(keys), without) == wanted:
                    yield [values[key] for key in keys], source, without
        if _filled(frozenset(self.twin)) == wanted:
            yield None, frozenset(self.twin), ()


@kind(set, frozenset)
def _existing(t: Tracer, real: Any, origin: Origin) -> Value:
    if type(real) is frozenset and origin.kind not in FRESH_KINDS:
        t.guards.add(origin, "is", real)
        value = t.from_python(real)
        assert isinstance(value, SetValue)
        value.real, value.origin, value.before = real, origin, dict(value.entries)
        return value
    t.guards.add(origin, "type", type(real))
    return SetValue.existing(t, real, origin) or OpaqueValue(real, origin)


def add_members(target: set[Any], items: tuple[Any, ...]) -> None:
    """Called from new code: adds one by one, as the program did."""
    for item in items:
        target.add(item)


AT_ONCE = dict.fromkeys  # a dictionary is copied as a whole, like a set


def _filled(source: Any, without: Iterable[Any] = ()) -> list[Any]:
    """Returns the order of a new set after adding all of `source` and removing `without`."""
    result: set[Any] = set()
    result.update(source)
    result.difference_update(without)
    return list(result)


def _model(t: Tracer, source: Value) -> Any:
    """Returns a real set or dictionary that is stored like `source`; None if there is none."""
    if isinstance(source, SetValue):
        return source.model()
    assert isinstance(source, DictValue)
    keys = dict.fromkeys(source.entries(t))
    return keys if all(map(is_own, keys)) else None


class SetIterator(SequenceIterator):
    over: SetValue

    def __init__(self, over: SetValue, items: list[Value]) -> None:
        super().__init__(over, items)
        self.keys = {*over.entries}
        self.placed = over.placed, len(over.placed)

    def fault(self) -> str | None:
        now, (placed, count) = self.over.entries.keys(), self.placed
        if self.ended:
            return None
        if len(now) != len(self.keys):
            return "Set changed size during iteration"
        is_other = self.over.placed is not placed or len(placed) != count
        if is_other and now != self.keys:
            raise Skip("items of a set come and go while it is iterated over")
        return None


def as_set(t: Tracer, value: Value) -> SetValue | None:
    """Returns a set, or the view of a dictionary's keys or items as a set; None for other values."""
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


def _common(a: dict[Any, Value], b: dict[Any, Value]) -> dict[Any, Value]:
    """Returns the items that are in both. They are those of the smaller set, since CPython iterates over that
    one."""
    if len(b) > len(a):
        a, b = b, a
    return {key: item for key, item in b.items() if key in a}


SET_ALGEBRA = {
    operator.or_: lambda a, b: {**a, **{k: v for k, v in b.items() if k not in a}}, operator.and_: lambda a, b: _common(a, b),
    operator.sub: lambda a, b: {k: v for k, v in a.items() if k not in b},
    operator.xor: lambda a, b: {k: v for k, v in {**a, **b}.items() if (k in a) is not (k in b)},
}  # fmt: skip


def tell_sets_apart(t: Tracer, left: SetValue, right: SetValue) -> None:
    if t.has_token_keys:
        for key in left.entries:
            tell_apart(t, key, right.entries)


def operated(
    t: Tracer, fn: Any, left: SetValue, right: SetValue, cls: type | None = None
) -> Value | None:
    """Applies an operator or a comparison; None if sets have no such operator."""
    tell_sets_apart(t, left, right)
    if fn in COMPARISONS.values():
        return boolean(fn(left.entries.keys(), right.entries.keys()))
    return combined(t, fn, left, right, cls) if fn in SET_ALGEBRA else None


def view_operator(t: Tracer, fn: Any, view: ViewValue, other: Value) -> Value | None:
    """Applies an operator of a dictionary's view, whose other operand may be any iterable."""
    if isinstance(other, ViewValue) and view.kind == other.kind == "items":
        return view.over.operator(t, fn, other.over)
    left, right = as_set(t, view), as_set(t, other)
    if left is not None and right is None and fn in SET_ALGEBRA:
        right = SetValue()
        right.update(t, other)
    return None if left is None or right is None else operated(t, fn, left, right, set)


def combine_in_place(t: Tracer, fn: Any, own: SetValue, other: SetValue) -> SetValue:
    """Changes `own` to the result. Removing items from a set does not move the other items; a new set may
    have another order."""
    result, twin, model = combined(t, fn, own, other), own.changeable_model(), other.model()
    own.become(t, result)
    if fn in UPDATES:
        own.twin = None if twin is None or model is None else twin
        if own.twin is not None:
            UPDATES[fn](own.twin, model)
    return own


# Operations that change a set without moving its other items; `set.intersection_update` makes a new set.
UPDATES: dict[Any, Any] = {
    operator.or_: set.update, operator.sub: set.difference_update, operator.xor: set.symmetric_difference_update,
}  # fmt: skip


def combined(
    t: Tracer, fn: Any, left: SetValue, right: SetValue, cls: type | None = None
) -> SetValue:
    """Applies an operator to two sets. The result has the class of `left` if `cls` is None."""
    result = SetValue(cls or left.cls)
    result.note_site(t)
    result.entries = SET_ALGEBRA[fn](left.entries, right.entries)
    result.placed = left.placed | left.entries | right.entries
    models = [left.model(), right.model()]
    result.twin = fn(*models) if all(model is not None for model in models) else None
    return result


def set_of(t: Tracer, cls: type, items: list[Value]) -> SetValue:
    result = SetValue(cls)
    if cls is frozenset:  # it is filled at once
        for item in items:
            item = t.look(item)
            result.entries.setdefault(item.key(t), item)
        result.twin = frozenset(result.entries) if all(map(is_own, result.entries)) else None
        return result
    for item in items:
        item = t.look(item)
        result.put(t, item.key(t), item)
    return result


def is_guardable(member: Any) -> bool:
    """Whether guards can compare it without running Python code: plain constants by value, others by
    identity."""
    if type(member) is tuple:
        return all(map(is_guardable, member))
    cls = type(member)
    return cls in CONSTANTS or cls.__hash__ is TENSOR_HASH or has_known_hash(member)


TENSOR_HASH = torch.Tensor.__hash__
CONSTANTS = frozenset({str, int, bool, bytes, float, complex, type(None), type(Ellipsis)})
