"""Converts objects to values and back: objects that the capture made, and arguments of torch calls."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.class_lookup import HEAP_TYPE, has_programs_methods
from frameloom.capture.interpreter.wrapped_tensor import WrappedTensor
from frameloom.capture.tensors.constant_folding import known_value
from frameloom.capture.tensors.fake import Fake, is_wrapper
from frameloom.capture.tensors.leaves import is_leaf, note_leaf
from frameloom.capture.tensors.supported import check_compiled
from frameloom.capture.values.arrays.numpy_values import call_kind
from frameloom.capture.values.base import NotConstant, Value
from frameloom.capture.values.const import ConstValue, boolean, is_constant
from frameloom.capture.values.containers.container import ListValue, SliceValue, TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.containers.sets import SetValue
from frameloom.capture.values.function import BuiltinValue
from frameloom.capture.values.identity import is_own
from frameloom.capture.values.numbers.number import NumberValue
from frameloom.capture.values.numbers.size import SymbolicSize, as_size, size_value
from frameloom.capture.values.numbers.symbolic import SYMBOLS, SymbolicNumber
from frameloom.capture.values.object import boxed
from frameloom.capture.values.policy import may_be_given_numbers
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.compare import equal
from frameloom.ir.symbolic.expr import Size
from frameloom.ir.symbolic.symint import SizeNode, size_of

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


def from_python(t: Tracer, obj: Any) -> Value:
    """Returns a value for an object made during the capture: a constant, a fake tensor, or a container of
    them."""
    if isinstance(obj, Fake):
        known = t.tensors.get(id(obj))
        if known is None:
            if is_leaf(obj):
                note_leaf(t, obj)
            known = t.tensors[id(obj)] = TensorValue(obj)
        return known
    if isinstance(obj, torch.Tensor) and is_wrapper(obj):
        known = t.tensors.get(id(obj))
        if known is None:
            known = t.tensors[id(obj)] = WrappedTensor(obj, t.backward.transforms[-1])
        return known
    if type(obj) is bool:
        return boolean(obj)
    if isinstance(obj, SYMBOLS):
        if isinstance(obj, torch.SymInt) and isinstance(obj.node, SizeNode):
            return size_value(t, size_of(obj))
        return obj.node.number  # type: ignore[no-any-return]
    if is_constant(obj):
        return ConstValue(obj)
    if isinstance(obj, tuple):
        return TupleValue([from_python(t, item) for item in obj], type(obj))
    if type(obj) is list:
        return ListValue([from_python(t, item) for item in obj])
    if type(obj) is slice:
        return SliceValue(
            from_python(t, obj.start), from_python(t, obj.stop), from_python(t, obj.step)
        )
    if type(obj) is dict:
        table = DictValue()
        for key, item in obj.items():
            name = from_python(t, key)
            table.written[name.key(t)] = (name, from_python(t, item))
        return table
    if isinstance(obj, set | frozenset):
        collection = SetValue(type(obj))
        for item in obj:
            element = from_python(t, item)
            collection.entries[element.key(t)] = element
        own = all(is_own(key) for key in collection.entries)
        collection.twin = obj.copy() if own else None
        return collection
    return t.pinned(obj)


def to_torch(t: Tracer, value: Value, fn: Any = None) -> Any:
    """Returns the argument in the form that the recorder takes: fakes, plain Python values and containers of
    them."""
    value = t.look(value)
    if isinstance(value, TensorValue):
        check_compiled(value.fake.device)
        return value.fake
    if (inside := boxed(value)) is not None and not has_programs_methods(value.type()):
        return inside.real
    if isinstance(value, NumberValue) and value.cls is int:
        value = value.size(t)
    if isinstance(value, SymbolicNumber):
        if value.is_size or may_be_given_numbers(fn, value.type()):
            return value.symbol()
        size = as_size(value)
        return value.real if size is None else size
    if isinstance(value, ConstValue | ClassValue | BuiltinValue):
        return value.real
    if isinstance(value, TupleValue):
        items = [to_torch(t, item, fn) for item in value.items]
        return tuple(items) if value.cls is tuple else value.cls(items)
    if isinstance(value, ListValue) and value.type() is list:
        return [to_torch(t, item, fn) for item in value.items]
    if isinstance(value, SliceValue):
        return slice(*(to_torch(t, bound, fn) for bound in value.bounds))
    if isinstance(value, DictValue):
        return {to_torch(t, k, fn): to_torch(t, v, fn) for k, v in value.entries(t).values()}
    raise Break(call_kind(fn, [value]), f"{getattr(fn, '__name__', fn)}({value.describe()})")


def _unbacked(t: Tracer, value: Value) -> Size | None:
    """Returns an int that is known only after an op of the graph, as a size."""
    if isinstance(value, NumberValue) and value.cls is int:
        value = value.size(t)
    size = value.size if isinstance(value, SymbolicSize) else None
    return size if isinstance(size, Size) and unbacked_in(size) else None


def index(
    t: Tracer,
    value: Value,
    fault: str = "'{}' object cannot be interpreted as an integer",
    items: int | None = None,
) -> int:
    """Returns a Python int, like `operator.index`. `items`: how many there are, if it is the place of one.
    The place of the only item is assumed to be 0 where the data decides it: most others raise."""
    value = t.look(value)
    if items == 1 and (size := _unbacked(t, value)) is not None and equal(size, 0):
        return 0
    if isinstance(value, TensorValue):
        known = known_value(value.fake, t.recorder)
        if known is None or known.numel() != 1 or known.is_floating_point() or known.is_complex():
            raise Break("item", "a tensor used as an index")
        return int(known.item())
    if value.type().__flags__ & HEAP_TYPE:
        result = getattr(value, "call_special", lambda *_: None)(t, "__index__")
        value = (boxed(value) or value) if result is None else result
    try:
        return operator.index(value.constant())
    except TypeError:
        t.raise_(TypeError, fault.format(value.type().__name__))
    except NotConstant:
        raise Break("opaque_object", f"index({value.describe()})") from None
