"""`copy.copy` and `copy.deepcopy` of containers, constants and plain Python objects.

The methods of objects are called, and copies made, in the order of the module `copy`. Classes that define
their own copying (other than by `__copy__` and `__deepcopy__`) are left to Python. Modules are copied by their
attributes. A deep copy of a tensor has a copy of its whole storage; only tensors that fill theirs are captured.
"""

from __future__ import annotations

import copy
import copyreg
from types import FunctionType
from typing import TYPE_CHECKING

import torch

from frameloom.capture.interpreter.call_rules import Args, Kwargs, knows
from frameloom.capture.interpreter.classes import check_finalizer
from frameloom.capture.shapes.iteration import is_dense
from frameloom.capture.tensors.functionalize import counter, is_inference
from frameloom.capture.values.attributes import AttributesValue
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import NONE, ConstValue, is_none
from frameloom.capture.values.containers.container import TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import BuiltinValue, FunctionValue
from frameloom.capture.values.module import ModuleValue
from frameloom.capture.values.object import MISSING, ObjectValue, class_attribute
from frameloom.capture.values.static import ClassValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.capture.values.token import TokenValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

# Other attributes that may decide how an object is copied.
CUSTOM = (
    "__new__",
    "__getattribute__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__slots__",
)


COPIES = {
    cls: [
        (name, class_attribute(cls, name)) for name in ("__copy__", "__deepcopy__", "__reduce_ex__")
    ]
    for cls in (torch.Tensor, torch.nn.Parameter)
}


def _is_modules(value: Value, name: str) -> bool:
    """Whether a module has this method from `torch.nn.Module`. What these do differs from plain objects only
    in that `__getattr__` looks in the module's tables, that `__getstate__` leaves out the compiled call, and
    that `__setstate__` adds what modules of older versions lack."""
    inherited = class_attribute(value.type(), name) is class_attribute(torch.nn.Module, name)
    names = ("__getattr__", "__getstate__", "__setstate__")
    return isinstance(value, ModuleValue) and name in names and inherited


@knows(copy.copy, least=1, most=1)
def _copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _Copier(t, deep=False).copy(t.look(args[0]))


@knows(copy.deepcopy, least=1, most=2)
def _deepcopy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    memo = t.look(args[1]) if len(args) > 1 else NONE
    if isinstance(memo, MemoValue):
        return memo.copier.copy(t.look(args[0]))
    if kwargs or not is_none(memo):
        raise Break("library_call", "copy.deepcopy(x, memo)")
    return _Copier(t, deep=True).copy(t.look(args[0]))


class MemoValue(Value):
    """The dictionary argument of `__deepcopy__`: the method passes it on, and may store the copy of its own
    object in it. Any other use would show identities, and breaks."""

    cls = dict

    def __init__(self, copier: _Copier) -> None:
        self.copier = copier

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        key = t.look(key)
        if not (isinstance(key, TokenValue) and key.make is id):
            super().setitem(t, key, value)
        assert isinstance(key, TokenValue)
        self.copier.memo[id(t.look(key.of[0]))] = t.look(value)


def _filled(copied: Value) -> Value:
    """Returns the copy of a tensor with one counted write: PyTorch makes it empty and then sets its memory."""
    assert isinstance(copied, TensorValue)
    counter(copied.fake).counted += 1
    return copied


class _Copier:
    def __init__(self, t: Tracer, deep: bool) -> None:
        self.t = t
        self.deep = deep
        self.memo: dict[int, Value] = {}
        self.tensors: list[TensorValue] = []  # whose storages were copied

    def part(self, value: Value) -> Value:
        return self.copy(self.t.look(value)) if self.deep else value

    def copy(self, value: Value) -> Value:
        if isinstance(value, ConstValue | FunctionValue | BuiltinValue | ClassValue):
            return value
        if id(value) in self.memo:
            return self.memo[id(value)]
        if isinstance(value, TensorValue):
            new = self._tensor(value)
        else:
            new = self._object(value) if isinstance(value, ObjectValue) else value.copied(self)
        if new is not value:  # otherwise it is copied again the next time
            self.memo[id(value)] = new
        return new

    def _object(self, value: ObjectValue) -> Value:
        t = self.t
        name = "__deepcopy__" if self.deep else "__copy__"
        if isinstance(value.special(name), FunctionType):
            copied = value.call_special(t, name, *([MemoValue(self)] if self.deep else []))
            assert copied is not None
            return copied
        self.check_class(value)
        # The module reads the class, so the metaclass may have it, too.
        asked = (class_attribute(cls, name) for cls in (value.cls, type(value.cls)))
        if value.payload is not None or any(attribute is not MISSING for attribute in asked):
            raise Break("library_call", f"copy of {value.describe()}")
        check_finalizer(value.cls)
        table = AttributesValue(value).entries(t)
        getter = class_attribute(value.cls, "__getattr__")
        has_getter = getter is not MISSING and not _is_modules(value, "__getattr__")
        if has_getter or not {
            name,
            "__reduce_ex__",
        }.isdisjoint(
            table
        ):  # the module reads it from the object itself, and `__setstate__` from the new one
            raise Break(
                "library_call", f"copy of {value.describe()}, which is asked for what it lacks"
            )
        is_module = isinstance(value, ModuleValue)
        result = ModuleValue(value.cls) if is_module else ObjectValue(value.cls)
        self.memo[id(value)] = result
        for key, item in table.values():
            if is_module and key.constant() == "_compiled_call_impl":
                continue
            result.attributes[key.constant()] = self.part(item)
        return result

    def _tensor(self, value: TensorValue) -> Value:
        t = self.t
        refused = Break("library_call", f"copy of {value.describe()}")
        is_parameter = value.cls is torch.nn.Parameter
        if type(value) is not TensorValue or value.is_overridden(t) or value.new_data is not None:
            raise refused
        if torch.is_inference_mode_enabled() or is_inference(value.fake):
            raise refused
        if any(class_attribute(value.cls, name) is not own for name, own in COPIES[value.cls]):
            raise refused
        if is_parameter and self.deep:
            data = t.torch_call(torch.Tensor.detach, [value], {})
            keep = {"memory_format": t.from_python(torch.preserve_format)}
            data = t.torch_call(torch.Tensor.clone, [data], keep)
            flag = ConstValue(bool(value.fake.requires_grad))
            return t.look(t.call(t.pinned(value.cls), [data, flag], {}))
        if is_parameter or value.fake.requires_grad or AttributesValue(value).entries(t):
            raise refused
        if not self.deep:
            return _filled(value.uncounted(t))  # the same storage, no history
        if not is_none(t.look(value.getattr(t, "grad"))):
            raise refused
        self._check_storage(value, refused)
        for other in self.tensors:
            self._check_apart(value, other, refused)
        self.tensors.append(value)
        keep = {"memory_format": t.from_python(torch.preserve_format)}
        return _filled(t.torch_call(torch.Tensor.clone, [value], keep))

    def _check_storage(self, value: TensorValue, refused: Break) -> None:
        """Breaks if the tensor does not fill its storage, of which the copy has all."""
        fake, t = value.fake, self.t
        if not all(type(n) is int for n in (*fake.shape, *fake.stride())) or not is_dense(fake):
            raise refused
        if value.real is None or value.origin is None:
            if fake.view_of is not None or fake.memory.input is not None:
                raise refused
            return
        size = value.real.numel() * value.real.element_size()
        if value.real.untyped_storage().nbytes() != size or fake.memory.root is not fake:
            raise refused
        t.guards.add(value.origin, "storage_bytes", size)

    def _check_apart(self, value: TensorValue, other: TensorValue, refused: Break) -> None:
        """Breaks if the tensors share memory: then their copies share memory, too."""
        if value.fake.memory is other.fake.memory:
            raise refused
        if value.origin is None or other.origin is None:
            return
        assert value.real is not None and other.real is not None
        if value.real.untyped_storage()._cdata == other.real.untyped_storage()._cdata:
            raise refused
        self.t.guards.apart(value.origin, other.origin)

    def check_class(self, value: Value) -> None:
        """Breaks if the class is not copied by its instances' items or attributes."""
        cls = value.type()
        registered = self.t.pinned(copyreg.dispatch_table)
        assert isinstance(registered, DictValue)
        if registered.get(self.t, self.t.pinned(cls)) is not None or (
            not isinstance(value, TupleValue)  # its class has no special methods of its own
            and any(
                class_attribute(cls, name) is not class_attribute(object, name)
                and not _is_modules(value, name)
                for name in CUSTOM
            )
        ):
            raise Break("library_call", f"copy of {value.describe()}")
