"""Classes, Python modules, `super()` objects, exceptions and the grad-mode context managers."""

from __future__ import annotations

from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.class_lookup import (
    HEAP_TYPE,
    MISSING,
    asks_program,
    attribute_after,
    class_attribute,
    is_data_descriptor,
    is_programs,
    works_as,
)
from frameloom.capture.values.base import ExistingValue, Value
from frameloom.capture.values.const import NONE, ConstValue, is_constant
from frameloom.capture.values.containers.dictionary import DELETED
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue
from frameloom.capture.values.object import ObjectValue
from frameloom.capture.values.policy import function_verdict
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder

# A class gives them as they are, like any object that does not bind itself to classes.
NATIVE_METHODS = MethodDescriptorType, WrapperDescriptorType


class ClassValue(ExistingValue):
    def constant(self) -> Any:
        return self.real

    def describe(self) -> str:
        return self.real.__name__

    def truth(self, t: Tracer) -> bool:
        if (
            class_attribute(type(self.real), "__bool__") is MISSING
            and class_attribute(type(self.real), "__len__") is MISSING
        ):
            return True
        self._no_python_in_metaclass("__bool__")
        self._no_python_in_metaclass("__len__")
        return bool(t.evaluate(bool, [self], {}).constant())

    def length(self, t: Tracer) -> int:
        self._no_python_in_metaclass("__len__")
        return int(t.evaluate(len, [self], {}).constant())

    def key(self, t: Tracer) -> Any:
        self._no_python_in_metaclass("__hash__")
        self._no_python_in_metaclass("__eq__")
        return self.real

    def getattr(self, t: Tracer, name: str) -> Value:
        attribute = class_attribute(self.real, name)
        meta = class_attribute(type(self.real), name)
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "__mro__", "__bases__"):
            value = getattr(self.real, name)
            return t.look(t.wrap(value, t.class_origin(self.real).child("attr", name)))
        if works_as(meta, property) and meta.fget is not None:
            return t.call(t.pinned(meta.fget), [self], {})
        self._no_python_in_metaclass("__getattribute__")
        if is_data_descriptor(meta) and type(meta).__flags__ & HEAP_TYPE:
            raise Break("attribute", f"{self.describe()}.{name} of the metaclass")
        if attribute is MISSING:
            if meta is MISSING:
                hook = class_attribute(type(self.real), "__getattr__")
                if isinstance(hook, FunctionType):
                    return t.call(t.pinned(hook), [self, ConstValue(name)], {})
                if hook is not MISSING:
                    raise Break("attribute", f"{self.describe()}.{name}")
                return t.raise_no_attribute(f"type object '{self.real.__name__}'", name)
            if type(meta).__name__ == "method_descriptor":
                return BoundMethodValue(BuiltinValue(meta), self)
            if isinstance(meta, FunctionType):
                return BoundMethodValue(t.pinned(meta), self)
            if (
                class_attribute(type(meta), "__get__") is not MISSING
                and type(meta).__flags__ & 1 << 9
            ):
                raise Break("attribute", f"{self.describe()}.{name}")
            value = getattr(self.real, name, MISSING)
            if value is MISSING:
                raise Break("exception", f"{self.describe()}.{name}")
            if not hasattr(type(meta), "__get__"):
                return t.look(t.wrap(value, t.class_origin(self.real).child("attr", name)))
            return t.from_python(value) if isinstance(value, tuple) else t.pinned(value)
        if isinstance(attribute, FunctionType) or t.is_jitted(attribute):
            return t.class_function(self.real, name, attribute)
        if works_as(attribute, staticmethod):
            return t.pinned(attribute.__func__)
        if works_as(attribute, classmethod) and isinstance(attribute.__func__, FunctionType):
            return BoundMethodValue(t.pinned(attribute.__func__), self)
        getter = class_attribute(type(attribute), "__get__")
        if isinstance(getter, FunctionType):
            return t.call(t.pinned(getter), [t.pinned(attribute), NONE, self], {})
        if isinstance(attribute, classmethod) and not isinstance(
            attribute.__func__, BuiltinFunctionType
        ):
            raise Break("attribute", f"{self.describe()}.{name}")
        value = getattr(self.real, name, MISSING)
        if value is MISSING:  # __abstractmethods__
            raise Break("exception", f"{self.describe()}.{name}")
        if getter is not MISSING and (value is not attribute or isinstance(value, NATIVE_METHODS)):
            if callable(value):
                return BuiltinValue(value)
            if is_constant(value):
                return ConstValue(value)
            raise Break("attribute", f"{self.describe()}.{name}")
        load = "attr" if getter is MISSING else "class_attr"  # guards must not bind it
        return t.look(t.wrap(value, t.class_origin(self.real).child(load, name)))

    def getitem(self, t: Tracer, key: Value) -> Value:
        of_metaclass = class_attribute(type(self.real), "__getitem__")
        if isinstance(of_metaclass, FunctionType) and is_programs(of_metaclass):
            return t.call(t.pinned(of_metaclass), [self, key], {})
        self._no_python_in_metaclass("__getitem__")
        own = class_attribute(self.real, "__class_getitem__")
        if own is MISSING:
            own = class_attribute(type(self.real), "__class_getitem__")
        inner = own.__func__ if isinstance(own, classmethod | staticmethod) else own
        if isinstance(inner, FunctionType) and inner.__module__ not in ("typing", "types"):
            return t.call(self.getattr(t, "__class_getitem__"), [key], {})
        if own is not MISSING and is_programs(own):
            raise Break("attribute", f"{self.describe()}[...]")
        return t.evaluate(lambda cls, k: cls[k], [self, key], {})

    def _no_python_in_metaclass(self, name: str) -> None:
        """Breaks if the metaclass has this method in Python: evaluating would run code of the program that is
        not captured."""
        if asks_program(type(self.real), (name,)):
            raise Break("attribute", f"{self.describe()}.{name}")

    def contains(self, t: Tracer, item: Value) -> bool:
        self._no_python_in_metaclass("__contains__")
        return bool(t.evaluate(lambda cls, k: k in cls, [self, item], {}).constant())

    def iterate(self, t: Tracer) -> Value:
        self._no_python_in_metaclass("__iter__")
        return t.evaluate(tuple, [self], {}).iterate(t)

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return t.instantiate(self, args, kwargs)


class PyModuleValue(ExistingValue):
    """An imported module."""

    is_true = True

    def describe(self) -> str:
        return str(getattr(self.real, "__name__", "module"))

    def key(self, t: Tracer) -> Any:
        return self.real

    def getattr(self, t: Tracer, name: str) -> Value:
        table = self.real.__dict__
        written = t.written_global(table, name)
        if written is DELETED:
            raise Break("attribute", f"{self.describe()}.{name}, which was deleted")
        if written is not None:
            return t.look(written)
        origin = (self.origin or t.roots.object(self.real)).child("dict")
        if name in table:
            return t.look(t.wrap(table[name], origin.child("key", name)))
        computed = self._computed(t, name)
        if computed is not None:
            return computed
        hook = table.get("__getattr__")
        is_of_all = class_attribute(ModuleType, name) is not MISSING
        if not is_of_all and isinstance(hook, FunctionType) and function_verdict(hook) == "inline":
            t.guards.add(origin, "no_key", name)
            return t.call(t.wrap(hook, origin.child("key", "__getattr__")), [ConstValue(name)], {})
        if hook is not None or type(self.real) is not ModuleType:
            value = getattr(self.real, name, MISSING)  # a module that loads its contents on demand
            if value is MISSING:
                return t.raise_no_attribute(f"module '{self.describe()}'", name)
            if name not in table:
                return t.pinned(value)
            return t.look(t.wrap(value, origin.child("key", name)))
        if name == "__dict__":
            return t.globals_table(table, None)
        if name == "__class__":
            return t.pinned(ModuleType)
        if is_of_all:
            raise Break("attribute", f"{self.describe()}.{name}")
        for missing in (name, "__getattr__"):
            t.guards.add(origin, "no_key", missing)
        return t.raise_no_attribute(f"module '{self.describe()}'", name)

    def _computed(self, t: Tracer, name: str) -> Value | None:
        """Returns the result of a descriptor of the module's own class, such as the flags in
        `torch.backends`."""
        attribute = (
            MISSING if type(self.real) is ModuleType else class_attribute(type(self.real), name)
        )
        getter = class_attribute(type(attribute), "__get__")
        if attribute is MISSING or not isinstance(getter, FunctionType):
            return None
        return t.call(t.pinned(getter), [t.pinned(attribute), self, t.pinned(type(self.real))], {})


class SuperValue(Value):
    """`super(cls, obj)`."""

    def __init__(self, cls: type, owner: Value) -> None:
        self.of_class = isinstance(owner, ClassValue) and cls in (owner.real.__mro__ or ())
        inner = owner.real if self.of_class else owner.type()
        if cls not in (inner.__mro__ or ()):
            raise Break("unknown_call", f"super({cls.__name__}, {owner.describe()})")
        self.cls = cls
        self.owner = owner

    def type(self) -> type:
        return super

    def parts(self) -> list[Value]:
        return [self.owner]

    def getattr(self, t: Tracer, name: str) -> Value:
        owner = self.owner
        if name == "__class__":
            return t.pinned(super)
        if isinstance(owner, ClassValue) and not self.of_class:  # in a metaclass
            attribute = attribute_after(type(owner.real), self.cls, name)
            if isinstance(attribute, FunctionType):
                return BoundMethodValue(t.pinned(attribute), owner)
            if type(attribute).__name__ in ("wrapper_descriptor", "method_descriptor"):
                return BoundMethodValue(BuiltinValue(attribute), owner)
            raise Break("attribute", f"super().{name}")
        if isinstance(owner, ClassValue):
            attribute = attribute_after(owner.real, self.cls, name)
            if works_as(attribute, classmethod) and isinstance(attribute.__func__, FunctionType):
                return BoundMethodValue(t.pinned(attribute.__func__), owner)
            if works_as(attribute, staticmethod):
                attribute = attribute.__func__
            if isinstance(attribute, FunctionType):
                return t.pinned(attribute)
            if name in ("__new__", "__init_subclass__") and attribute is not MISSING:
                return BuiltinValue(getattr(super(self.cls, owner.real), name))
            raise Break("attribute", f"super().{name}")
        if isinstance(owner, ObjectValue | TensorValue):
            value = owner.find(t, name, after=self.cls)
            if value is not None:
                return value
            return t.raise_no_attribute("'super' object", name)
        raise Break("attribute", f"super().{name}")

    def rebuild(self, r: Rebuilder) -> None:
        r.call(super, self.cls, self.owner)


class GradModeValue(Value):
    """An instance of `torch.inference_mode`, `autocast` or `DisableTorchFunctionSubclass`, entered or not.
    `make` makes a new one."""

    mutable = ("entered",)

    CLASSES = (torch.inference_mode, torch.autocast, torch._C.DisableTorchFunctionSubclass)

    def __init__(self, cls: type, make: Callable[[], Any]) -> None:
        self.cls = cls
        self.make = make
        self.entered: Any = None

    def getattr(self, t: Tracer, name: str) -> Value:
        if name in ("__enter__", "__exit__"):
            return BoundMethodValue(BuiltinValue(getattr(self.cls, name)), self)
        raise Break("attribute", f"{self.describe()}.{name}")

    def call(self, t: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Break("unknown_call", f"{self.cls.__name__}() as a decorator")

    def enter(self, t: Tracer) -> Value:
        """Really enters it, so that recorded calls see the mode; undone when the capture undoes a step or
        ends."""
        mode = self.make()
        if self.cls is torch.autocast:
            t.settings.casts.enter()
        t.change(self)
        self.entered = mode
        t.settings.turn(t, self, True, mode.__enter__, lambda: mode.__exit__(None, None, None))
        return self if self.cls is torch.autocast else ConstValue(None)

    def exit(self, t: Tracer) -> Value:
        mode = self.entered
        if mode is None or t.settings.entered() is not self:
            raise Break("context_manager", f"{self.cls.__name__} left out of order")
        t.settings.turn(t, self, False, lambda: mode.__exit__(None, None, None), mode.__enter__)
        t.change(self)
        self.entered = None
        return ConstValue(None)

    def rebuild(self, r: Rebuilder) -> None:
        r.code.call_const(self.make)  # interpreter/context_managers.py enters it
