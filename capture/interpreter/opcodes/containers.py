"""Builds and unpacks tuples, lists, sets and dictionaries."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from frameloom.capture.guards.class_lookup import MISSING, class_attribute, name_in_texts
from frameloom.capture.interpreter.mappings import mapping_entries
from frameloom.capture.interpreter.opcodes.registry import handles
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.containers.container import ListValue, TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.containers.sets import SetValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame


@handles("BUILD_TUPLE")
def build_tuple(frame: Frame, ins: Instr) -> None:
    frame.push(TupleValue(frame.pop_many(ins.arg)))


@handles("BUILD_LIST")
def build_list(frame: Frame, ins: Instr) -> None:
    frame.push(ListValue(frame.pop_many(ins.arg)))


@handles("BUILD_SET")
def build_set(frame: Frame, ins: Instr) -> None:
    result = SetValue()
    for item in frame.pop_many(ins.arg):
        result.add(frame.t, item)
    frame.push(result)


@handles("BUILD_MAP")
def build_map(frame: Frame, ins: Instr) -> None:
    items = frame.pop_many(2 * ins.arg)
    frame.push(dictionary(frame, items[::2], items[1::2]))


@handles("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: Frame, ins: Instr) -> None:
    keys = frame.pop()
    frame.push(dictionary(frame, frame.t.items(keys), frame.pop_many(ins.arg)))


def dictionary(frame: Frame, keys: list[Value], values: list[Value]) -> DictValue:
    result = DictValue()
    for key, value in zip(keys, values, strict=True):
        result.setitem(frame.t, frame.t.look(key), value)
    return result


@handles("LIST_APPEND")
def list_append(frame: Frame, ins: Instr) -> None:
    item = frame.pop_raw()
    target = frame.t.look(frame.stack[-ins.arg])
    assert isinstance(target, ListValue)
    target.append(frame.t, item)


@handles("LIST_EXTEND")
def list_extend(frame: Frame, ins: Instr) -> None:
    source, target = frame.pop(), frame.t.look(frame.stack[-ins.arg])
    assert isinstance(target, ListValue)
    target.extend(frame.t, source)


@handles("LIST_TO_TUPLE")
def list_to_tuple(frame: Frame, ins: Instr) -> None:
    frame.push(TupleValue(list(frame.t.items(frame.pop()))))


@handles("SET_ADD")
def set_add(frame: Frame, ins: Instr) -> None:
    item = frame.pop()
    target = frame.t.look(frame.stack[-ins.arg])
    if not isinstance(target, SetValue):
        raise Break("opaque_object", ins.op.lower())
    target.add(frame.t, item)


@handles("SET_UPDATE")
def set_update(frame: Frame, ins: Instr) -> None:
    source = frame.pop()
    target = frame.t.look(frame.stack[-ins.arg])
    if not isinstance(target, SetValue):
        raise Break("opaque_object", ins.op.lower())
    target.update(frame.t, source)


@handles("MAP_ADD")
def map_add(frame: Frame, ins: Instr) -> None:
    value, key = frame.pop_raw(), frame.pop()
    frame.t.look(frame.stack[-ins.arg]).setitem(frame.t, key, value)


@handles("DICT_UPDATE", "DICT_MERGE")
def dict_update(frame: Frame, ins: Instr) -> None:
    source, target = frame.pop(), frame.t.look(frame.stack[-ins.arg])
    assert isinstance(target, DictValue)
    try:
        for key, value in mapping_entries(frame.t, source):
            if ins.op == "DICT_MERGE" and target.contains(frame.t, key):
                frame.t.raise_unworded(
                    TypeError, f"more than one value for argument {key.constant()!r}"
                )
            target.setitem(frame.t, key, value)
    except Raised as raised:
        if raised.is_a(AttributeError):
            frame.t.raise_unworded(TypeError, f"**{source.describe()}")
        raise


def _unpacked(frame: Frame) -> Value:
    source = frame.pop()
    cls = source.type()
    if all(class_attribute(cls, name) is MISSING for name in ("__iter__", "__getitem__")):
        frame.t.raise_(TypeError, f"cannot unpack non-iterable {name_in_texts(cls)} object")
    return source


@handles("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, ins: Instr) -> None:
    source = _unpacked(frame)
    if isinstance(source, TensorValue) and source.fake.ndim and source.fake.shape[0] != ins.arg:
        raise Break("unpack", f"{source.fake.shape[0]} rows into {ins.arg} names")
    items = list(itertools.islice(frame.t.each(source), ins.arg + 1))
    if len(items) != ins.arg:
        more = len(items) > ins.arg
        frame.t.raise_(
            ValueError,
            f"too many values to unpack (expected {ins.arg})"
            if more
            else f"not enough values to unpack (expected {ins.arg}, got {len(items)})",
        )
    frame.stack.extend(reversed(items))


@handles("UNPACK_EX")
def unpack_ex(frame: Frame, ins: Instr) -> None:
    before, after = ins.arg & 255, ins.arg >> 8
    items = frame.t.list_items(_unpacked(frame))
    if len(items) < before + after:
        frame.t.raise_(
            ValueError,
            f"not enough values to unpack (expected at least {before + after}, got {len(items)})",
        )
    middle = ListValue(items[before : len(items) - after])
    frame.stack.extend(reversed([*items[:before], middle, *items[len(items) - after :]]))
