"""Changes of objects that existed before the call: replayed after the graph.

In: the values that changed, in the order of their first change. Out: instructions that bring the objects into
their final state. Only final states matter, since no code of the program runs in between; an attribute that
is set and set back needs no write.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.raw_attributes import delete_attribute, instance_dict, write_attribute
from frameloom.capture.resume.reconstruct import realized
from frameloom.capture.values.base import LazyValue, Value
from frameloom.capture.values.const import LITERALS, ConstValue, same_literal
from frameloom.capture.values.containers.container import ListValue
from frameloom.capture.values.containers.dictionary import DELETED, DictValue
from frameloom.capture.values.containers.iterator import SequenceIterator, advance
from frameloom.capture.values.containers.sets import SetValue
from frameloom.capture.values.function import CellValue
from frameloom.capture.values.identity import pin_key
from frameloom.capture.values.numbers.symbolic import is_symbolic
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder


class Effect:
    """One write: `values` are the values it needs, `emit` writes the instructions."""

    def __init__(self, target: Value, action: str, key: Any, values: list[Value]) -> None:
        self.target = target
        self.action = action
        self.key = key
        self.values = values

    def emit(self, r: Rebuilder) -> None:
        code = r.code
        if self.action == "set_attribute":
            code.start_call(write_attribute)
            r.load(self.target)
            code.load_const(self.key)
            r.load(self.values[0])
            code.call(3)
        elif self.action == "set_gradient":
            code.start_call(set_gradient)
            r.load(self.target)
            r.load(self.values[0])
            code.call(2)
        elif self.action == "delete_attribute":
            code.start_call(delete_attribute)
            r.load(self.target)
            code.load_const(self.key)
            code.call(2)
        elif self.action in ("set_key", "delete_key"):
            base = OrderedDict if issubclass(self.target.type(), OrderedDict) else dict
            code.start_call(base.__setitem__ if self.action == "set_key" else base.__delitem__)
            r.load(self.target)
            r.load_all(self.values)
            code.call(1 + len(self.values))
        elif self.action == "advance":
            code.start_call(advance)
            r.load(self.target)
            code.load_const(self.key[0])
            code.load_const(self.key[1])
            code.call(3)
        elif self.action in LIST_ACTIONS:
            code.start_call(LIST_ACTIONS[self.action])
            r.load(self.target)
            r.load_tuple(self.values)
            code.call(2)
        elif self.action in ("add_members", "discard_members"):
            code.start_call(add_members if self.action == "add_members" else discard_members)
            r.load(self.target)
            r.load_tuple(self.values)
            code.call(2)
        else:
            assert self.action == "set_cell", self.action
            code.start_call(set_cell)
            r.load(self.target)
            r.load_tuple(self.values)
            code.call(2)
        code.emit("POP_TOP")


def set_gradient(tensor: Any, gradient: Any) -> None:
    tensor.grad = gradient


def replace_list(target: Any, items: tuple[Any, ...]) -> None:
    """Replaces the items without calling methods of a subclass."""
    if isinstance(target, list):
        list.__setitem__(target, slice(None), items)
    else:
        target.clear()
        target.extend(items)


def set_items(target: Any, items: tuple[Any, ...]) -> None:
    """Writes each item in its place, so that iterators over `target` go on."""
    for place, item in enumerate(items):
        target[place] = item


LIST_ACTIONS = {"replace_list": replace_list, "set_items": set_items, "extend_list": list.extend}


def add_members(target: set[Any], items: tuple[Any, ...]) -> None:
    for item in items:
        target.add(item)


def discard_members(target: set[Any], items: tuple[Any, ...]) -> None:
    target.difference_update(items)


def set_cell(cell: Any, content: tuple[Any, ...]) -> None:
    if content:
        cell.cell_contents = content[0]
    else:
        del cell.cell_contents


def pending(t: Tracer, skip: set[int]) -> list[Effect]:
    """Returns the writes that are due. `skip`: ids of values that only this call can see."""
    effects: list[Effect] = []
    for value in t.changed.values():
        if id(value) in skip:
            continue
        if isinstance(value, ObjectValue) and value.origin is not None:
            effects += _attributes(t, value)
        elif isinstance(value, DictValue) and value.origin is not None:
            effects += _keys(t, value)
        elif isinstance(value, ListValue) and value.origin is not None:
            effects += _items(t, value)
        elif isinstance(value, SequenceIterator) and value.origin is not None:
            if (count := value.position - value.start) or value.ended:
                effects.append(Effect(value, "advance", (count, value.ended), []))
        elif isinstance(value, SetValue) and value.origin is not None:
            effects += _members(value)
        elif isinstance(value, TensorValue) and value.origin and value.new_gradient is not None:
            effects.append(Effect(value, "set_gradient", None, [value.new_gradient]))
        elif isinstance(value, CellValue) and value.real is not None:
            effects += _cell(t, value)
    return effects


MISSING = object()


def _unchanged(t: Tracer, new: Value, before: Any, place: Origin) -> bool:
    """Whether `place` need not be written. If it already holds the right object, this becomes a guard."""
    new = realized(new)
    if before is MISSING:
        return False
    if isinstance(new, TensorValue) and isinstance(before, torch.Tensor):
        t.session.dynamic_policy.outgrow(t.roots.function.__code__, place, new.fake.shape)
    if new.origin is place:
        return True
    if isinstance(new, LazyValue):  # it was never read: another call may find something else there
        return False
    if is_symbolic(new):
        return False
    if isinstance(new, ConstValue):
        same = type(new.real) in LITERALS and same_literal(new.real, before)
    else:
        same = new.origin is not None and new.real is before
    # A dynamic number may be different in the next call.
    return same and not is_symbolic(t.look(t.wrap(before, place)))


def _members(value: SetValue) -> list[Effect]:
    assert value.before is not None
    gone = [item for key, item in value.before.items() if key not in value.entries]
    new = [item for key, item in value.entries.items() if key not in value.before]
    effects = [Effect(value, "discard_members", None, gone)] if gone else []
    return [*effects, Effect(value, "add_members", None, new)] if new else effects


def _attributes(t: Tracer, value: ObjectValue) -> list[Effect]:
    assert value.origin is not None
    before = instance_dict(value.real) or {}
    table = value.origin.child("dict")
    effects = []
    for name, new in value.attributes.items():
        if new is DELETED:
            effects.append(Effect(value, "delete_attribute", name, []))
        elif not _unchanged(t, new, before.get(name, MISSING), table.child("key", name)):
            effects.append(Effect(value, "set_attribute", name, [new]))
    return effects


def _keys(t: Tracer, table: DictValue) -> list[Effect]:
    assert table.origin is not None
    effects = [Effect(table, "delete_key", None, [table.written[key][0]]) for key in table.moved]
    for index, (key, new) in table.written.items():
        before = dict.get(table.real, pin_key(t, index), MISSING)
        if new is DELETED:
            effects.append(Effect(table, "delete_key", None, [key]))
        elif index in table.moved or not _unchanged(t, new, before, table.place(t, index)):
            effects.append(Effect(table, "set_key", None, [key, new]))
    return effects


def _items(t: Tracer, value: ListValue) -> list[Effect]:
    if not value.is_seen:
        return [Effect(value, "extend_list", None, value.unseen)]
    origin = value.origin
    assert origin is not None
    is_as_long = len(value.items) == len(value.real)
    if is_as_long and all(
        _unchanged(t, new, before, origin.child("item", n))
        for n, (new, before) in enumerate(zip(value.items, value.real, strict=True))
    ):
        return []
    # A list takes a slice, whatever was done with it.
    in_place = is_as_long and not value.reshaped and not isinstance(value.real, list)
    return [Effect(value, "set_items" if in_place else "replace_list", None, value.items)]


def _cell(t: Tracer, value: CellValue) -> list[Effect]:
    try:
        before = value.real.cell_contents
    except ValueError:
        before = MISSING
    if value.content is None:
        return [Effect(value, "set_cell", None, [])]
    assert value.place is not None
    if _unchanged(t, value.content, before, value.place):
        return []
    return [Effect(value, "set_cell", None, [value.content])]
