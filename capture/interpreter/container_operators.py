"""Operators on lists, tuples, deques, dictionaries, their views and sets.

In: operator and operands, at least one a container. Out: the result; None if no rule fits, and then the
caller tries other rules.
"""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.bytecode.opcodes import COMPARISONS, IN_PLACE
from frameloom.capture.guards.class_lookup import is_subtype
from frameloom.capture.interpreter.mappings import fill_dict
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue, boolean
from frameloom.capture.values.containers.container import (
    ListValue,
    SequenceValue,
    SliceValue,
    TupleValue,
)
from frameloom.capture.values.containers.dictionary import DefaultDictValue, DictValue, ViewValue
from frameloom.capture.values.containers.sets import SetValue, as_set
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.token import tell_apart
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

MAX_ITEMS = 100_000
Operator = Callable[[Any, Any], Any]


def container_operator(t: Tracer, fn: Operator, left: Value, right: Value) -> Value | None:
    in_place = fn in IN_PLACE
    plain = IN_PLACE[fn][1] if in_place else fn
    own, other = _held(left), _held(right)
    if in_place and isinstance(own, ListValue):
        return _list_in_place(t, plain, left, own, right)
    if isinstance(own, SequenceValue) and isinstance(other, SequenceValue):
        return _sequence_operator(t, plain, own, other)
    if plain is operator.mul:
        return _repeated(t, own, other)
    if in_place and isinstance(own, DictValue) and plain is operator.or_:
        return _dict_in_place(t, left, right)
    if isinstance(own, DictValue) and isinstance(other, DictValue):
        if plain is operator.or_:
            return _dict_union(t, own, left, other, right)
        return _dict_comparison(t, plain, own, other)
    if isinstance(own, SliceValue) and isinstance(other, SliceValue):
        return _sequence_operator(t, plain, TupleValue(own.bounds), TupleValue(other.bounds))
    if (
        isinstance(own, ViewValue)
        and isinstance(other, ViewValue)
        and own.kind == other.kind == "items"
    ):
        return _dict_comparison(t, plain, own.over, other.over)
    sets = as_set(t, own), as_set(t, other)
    if sets[0] is not None and sets[1] is not None:
        if isinstance(own, ViewValue) or isinstance(other, ViewValue):
            return _set_operator(t, plain, None, sets[0], sets[1], set)  # the view's own operator
        return _set_operator(t, plain, own if in_place else None, sets[0], sets[1])
    if isinstance(own, ViewValue) and plain in SET_ALGEBRA and sets[0] is not None:
        source = SetValue()  # the other operand of a view's operator may be any iterable
        source.update(t, other)
        return _set_operator(t, plain, None, sets[0], source)
    if plain is operator.mod and isinstance(left, ConstValue) and isinstance(left.real, str):
        return t.evaluate(operator.mod, [left, right], {})
    return None


def _held(value: Value) -> Value:
    """Returns the built-in container inside an instance of a subclass of list, tuple or dict."""
    if isinstance(value, ObjectValue) and value.payload is not None:
        return value.payload
    return value


# --- sequences


def _list_in_place(
    t: Tracer, plain: Operator, target: Value, own: ListValue, other: Value
) -> Value | None:
    if plain is operator.add:
        own.extend(t, other)
        return target
    if plain is operator.mul:
        result = _repeated(t, own, other)
        assert isinstance(result, ListValue)
        own.replace(t, result.items)
        return target
    return None


def _repeated(t: Tracer, left: Value, right: Value) -> Value | None:
    sequence, count = (left, right) if isinstance(left, SequenceValue) else (right, left)
    if not isinstance(sequence, SequenceValue):
        return None
    times = t.index(count)
    if sequence.is_shared and (times == 1 or not sequence.items):
        return sequence
    if len(sequence.items) * times > MAX_ITEMS:
        raise Break("too_large", f"{len(sequence.items) * times} items")
    return sequence.like(sequence.items * times)


def _sequence_operator(
    t: Tracer, fn: Operator, left: SequenceValue, right: SequenceValue
) -> Value | None:
    same_type = left.native is right.native
    if fn is operator.add and same_type:
        items = [*left.items, *right.items]
        if _adds_sizes(left, right):
            # It refuses other items.
            return TupleValue(items, torch.Size) if all(t.look(i).type() is int for i in items) else None  # fmt: skip
        for own, other in ((left, right), (right, left)):
            if own.is_shared and not other.items:
                return own
        return left.like(items)
    if fn in (operator.eq, operator.ne) and not (same_type and len(left.items) == len(right.items)):
        return boolean(fn is operator.ne)
    if fn in COMPARISONS.values() and same_type:
        from frameloom.capture.interpreter.operators import binary

        at = 0  # comparing may change both, so the lengths are read again each time
        while at < min(len(left.items), len(right.items)):
            if not t.same_or_equal(left.items[at], right.items[at]):
                break
            at += 1
        if at >= min(len(left.items), len(right.items)):
            return boolean(fn(len(left.items), len(right.items)))
        if fn in (operator.eq, operator.ne):
            return boolean(fn is operator.ne)
        return binary(t, fn, left.items[at], right.items[at])
    return None


def _adds_sizes(left: SequenceValue, right: SequenceValue) -> bool:
    """Whether the sum is computed by a method of `torch.Size`."""
    if left.type() is torch.Size:
        return "__add__" in vars(torch.Size)
    return right.type() is torch.Size and "__radd__" in vars(torch.Size)


# --- dictionaries


def _dict_comparison(t: Tracer, plain: Operator, left: DictValue, right: DictValue) -> Value | None:  # fmt: skip
    if plain not in (operator.eq, operator.ne):
        return None
    return boolean(_equal(t, left, right) is (plain is operator.eq))


def _dict_union(t: Tracer, own: DictValue, left: Value, other: DictValue, right: Value) -> Value:
    result = _united(own, other)
    fill_dict(t, result, [left], {})
    fill_dict(t, result, [right], {})
    return result


def _dict_in_place(t: Tracer, target: Value, source: Value) -> Value:
    """Captures `target |= source`, which takes the same sources as `dict.update`."""
    fill_dict(t, target, [source], {})
    return target


def _united(left: DictValue, right: DictValue) -> Value:
    """Returns the empty dictionary that `left | right` fills. It has the class whose `__or__` runs: that of
    `right` if it is a subclass of the class of `left`, else that of `left`."""
    is_asked_first = right.cls is not left.cls and is_subtype(right.cls, left.cls)
    own = right if is_asked_first and right.cls.__or__ is not left.cls.__or__ else left
    if own.cls.__or__ is dict.__or__:
        return DictValue()
    if own.cls is OrderedDict:
        return DictValue(cls=OrderedDict)
    if own.cls is defaultdict:
        assert isinstance(own, DefaultDictValue)
        return own.empty()
    raise Break("opaque_object", f"{left.describe()} | {right.describe()}")  # calls the class


def _equal(t: Tracer, left: DictValue, right: DictValue) -> bool:
    ours, theirs = left.entries(t), right.entries(t)
    if ours.keys() != theirs.keys():
        return False
    if all(issubclass(table.cls, OrderedDict) for table in (left, right)) and list(ours) != list(theirs):  # fmt: skip
        return False
    return all(t.same_or_equal(value, theirs[index][1]) for index, (_, value) in ours.items())


# --- sets


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


def _set_operator(
    t: Tracer,
    fn: Operator,
    target: Value | None,
    left: SetValue,
    right: SetValue,
    cls: type | None = None,
) -> Value | None:
    if t.has_token_keys:
        for key in left.entries:
            tell_apart(t, key, right.entries)
    if fn in COMPARISONS.values():
        return boolean(fn(left.entries.keys(), right.entries.keys()))
    if fn not in SET_ALGEBRA:
        return None
    if isinstance(target, SetValue) and target.cls is set:
        return combine_in_place(t, fn, target, right)
    return combined(t, fn, left, right, cls)


def combine_in_place(t: Tracer, fn: Operator, own: SetValue, other: SetValue) -> SetValue:
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
    t: Tracer, fn: Operator, left: SetValue, right: SetValue, cls: type | None = None
) -> SetValue:
    """Applies an operator to two sets. The result has the class of `left` if `cls` is None."""
    result = SetValue(cls or left.cls)
    result.note_site(t)
    result.entries = SET_ALGEBRA[fn](left.entries, right.entries)
    result.placed = left.placed | left.entries | right.entries
    models = [left.model(), right.model()]
    result.twin = fn(*models) if all(model is not None for model in models) else None
    return result
