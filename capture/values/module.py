"""Modules of neural networks (`torch.nn.Module`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from frameloom.capture.guards.class_lookup import class_attribute
from frameloom.capture.values.base import Raised, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer


class ModuleValue(ObjectValue):
    """A `torch.nn.Module`. Parameters, buffers and submodules are read from their dictionaries, without
    `__getattr__`."""

    REGISTRIES = ("_parameters", "_buffers", "_modules")

    def registered(self, t: Tracer, name: str) -> Value | None:
        if class_attribute(self.cls, "__getattr__") is not torch.nn.Module.__getattr__:
            return None
        for registry in self.REGISTRIES:
            table = self.own(t, registry)
            if (
                isinstance(table, DictValue)
                and (member := table.get(t, ConstValue(name))) is not None
            ):
                return member
        return None

    def _fallback(self, t: Tracer, name: str, raised: Raised) -> Value:
        if class_attribute(self.cls, "__getattr__") is not torch.nn.Module.__getattr__:
            return super()._fallback(t, name, raised)
        member = self.registered(t, name)
        if member is not None:
            return member
        if not raised.is_a(AttributeError):
            raise raised
        # This text is right even if a getter, such as a property's, lacks another attribute.
        return t.raise_no_attribute(f"'{self.cls.__name__}' object", name)

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        """Stores plain values in the instance dictionary; PyTorch itself registers tensors, parameters and
        modules."""
        if class_attribute(self.cls, "__setattr__") is not torch.nn.Module.__setattr__:
            super().setattr(t, name, value)
            return
        value = t.look(value)
        if value is self.registered(t, name):
            return  # `self.layer = self.layer.to(dtype)` without a change
        if isinstance(value, ModuleValue) and self.real is None:
            modules = self.own(t, "_modules")
            if not isinstance(modules, DictValue):
                raise Break("attribute_write", f"{self.describe()}.{name} = ...")
            modules.setitem(t, ConstValue(name), value)
            return
        if isinstance(value, TensorValue):
            if t.is_instance(value, t.pinned(torch.nn.Parameter)):
                self._register(t, "parameter", ConstValue(name), value)
                return
            if t.is_instance(value, t.pinned(torch.nn.Buffer)):
                persistent = value.getattr(t, "persistent")
                self._register(t, "buffer", ConstValue(name), value, persistent)
                return
        registered = any(
            isinstance(table := self.own(t, registry), DictValue)
            and table.get(t, ConstValue(name)) is not None
            for registry in self.REGISTRIES
        )
        if registered and isinstance(value, TensorValue):
            table = self.own(t, "_buffers")
            if isinstance(table, DictValue) and table.get(t, ConstValue(name)) is not None:
                table.setitem(t, ConstValue(name), value)
                return
        if registered or isinstance(value, ModuleValue):
            raise Break("attribute_write", f"{self.describe()}.{name} = ...")
        self.setattr_generic(t, name, value)

    def _register(self, t: Tracer, kind: str, name: ConstValue, *args: Value) -> None:
        """Registers a parameter or a buffer, if the name is not that of something else."""
        own, method = f"_{kind}s", f"register_{kind}"
        others = [self.own(t, table) for table in self.REGISTRIES if table != own]
        is_free = self.own(t, name.real) is None and all(
            isinstance(table, DictValue) and table.get(t, name) is None for table in others
        )
        is_plain = class_attribute(self.cls, method) is getattr(torch.nn.Module, method)
        if not is_free or not (is_plain or kind == "parameter"):
            raise Break("attribute_write", f"{self.describe()}.{name.real} = ...")
        t.call(self.getattr(t, method), [name, *args], {})
