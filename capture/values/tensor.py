"""Tensors: each value stands for a Fake of the recorder; operations of the program on it are recorded.

Properties that guards fix (shape, dtype, device...) are plain constants. Operations that need the data
(`item`, `bool`, `numpy`) break.
"""

from __future__ import annotations

from dataclasses import replace
from types import FunctionType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.class_lookup import MISSING, class_attribute, is_data_descriptor
from frameloom.capture.guards.raw_attributes import instance_dict, set_attributes
from frameloom.capture.tensors.constant_folding import known_value
from frameloom.capture.tensors.functionalize import is_inference
from frameloom.capture.tensors.leaves import is_leaf, real_is_leaf, require_gradient
from frameloom.capture.values.base import Effect, Value
from frameloom.capture.values.const import NONE, TRUE, ConstValue
from frameloom.capture.values.containers.dictionary import DELETED
from frameloom.capture.values.function import BoundMethodValue, BuiltinValue
from frameloom.capture.values.identity import identity_key
from frameloom.capture.values.instance import InstanceValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder

PROPERTIES = frozenset(
    [
        "shape",
        "dtype",
        "device",
        "ndim",
        "requires_grad",
        "is_cuda",
        "is_cpu",
        "is_meta",
        "is_sparse",
        "is_quantized",
        "is_mps",
        "is_xpu",
        "is_nested",
        "is_mkldnn",
        "layout",
        "itemsize",
        "nbytes",
        "is_leaf",
        "names",
        "is_sparse_csr",
        "is_ipu",
        "is_xla",
        "is_vulkan",
        "is_maia",
        "is_mtia",
    ]
)
COMPUTED = {"T", "mT", "H", "mH", "real", "imag"}
NEEDS_DATA = {
    "item": "item", "tolist": "item", "numpy": "numpy", "__bool__": "item", "__int__": "item", "__float__": "item",
    "__index__": "item", "__complex__": "item", "__array__": "numpy", "data_ptr": "data_pointer", "const_data_ptr": "data_pointer", "mutable_data_ptr": "data_pointer", "storage": "data_pointer",
    "untyped_storage": "data_pointer", "backward": "autograd", "register_hook": "autograd", "retain_grad": "autograd",
    "requires_grad_": "autograd", "__cuda_array_interface__": "data_pointer", "__dlpack__": "numpy",
    "is_shared": "data_pointer", "is_set_to": "data_pointer",
    "share_memory_": "data_pointer", "set_": "data_pointer", "resize_": "data_pointer",
    "apply_": "item", "map_": "item", "map2_": "item", "__hash__": "identity", "__dir__": "identity",
}  # fmt: skip


# PyTorch reads these attributes of instances.
SPECIAL_NAMES = frozenset(["__class__", "__dict__", "__torch_function__"])


class TensorValue(InstanceValue):
    """A tensor. The program may also set attributes of it, which are in its instance dictionary."""

    mutable = ("new_gradient", "new_data", "fake", "attributes")

    def __init__(
        self,
        fake: torch.Tensor,
        real: torch.Tensor | None = None,
        origin: Origin | None = None,
        cls: type = torch.Tensor,
    ) -> None:
        super().__init__(cls if real is None else type(real), real, origin)
        self.fake: Any = fake  # a Fake of the recorder
        self.new_gradient: Value | None = None  # what the program set `.grad` to
        self.new_data: TensorValue | None = None  # a view of what it set `.data` to

    @property
    def is_output(self) -> bool:
        return self.origin is None

    def describe(self) -> str:
        return "tensor"

    def is_overridden(self, t: Tracer) -> bool:
        """Whether a function of the program decides what torch functions do."""
        return t.settings.function_mode is not None

    def check_not_overridden(self, t: Tracer, what: str) -> None:
        """Breaks there: PyTorch may call several functions that the program sees."""
        if self.is_overridden(t):
            raise Break("tensor_subclass", f"{what} of {self.describe()} in a function mode")

    def getattr(self, t: Tracer, name: str) -> Value:
        attribute = class_attribute(self.type(), name)  # noted: methods of tensors can be replaced
        if is_torchs_property(attribute) and self.is_overridden(t):
            return t.torch_call(attribute.__get__, [self], {})
        if name == "is_leaf" and self.real is not None and self.origin is not None:
            return self._is_leaf(t)
        if name == "is_leaf":
            return t.from_python(real_is_leaf(self.fake))
        if name in PROPERTIES and hasattr(torch.Tensor, name):
            return t.from_python(getattr(self.fake, name))
        if name == "grad_fn" and (not self.fake.requires_grad or self._is_known_leaf(t)):
            return ConstValue(None)
        if name == "grad" and self._has_own_gradient(t):
            return self.gradient(t)
        if name == "grad" and not self.fake.requires_grad:
            return ConstValue(None)
        if name == "_base" and self.real is None and (base := self._own_base(t)) is not None:
            return base
        if name in COMPUTED:
            return t.torch_call(getattr(torch.Tensor, name).__get__, [self], {})
        if name == "data":
            return self.uncounted(t)
        if name == "__class__":
            return t.from_python(self.type())
        has_own = name in self.attributes or (
            self.real is not None and name in (instance_dict(self.real) or ())
        )
        if has_own and (own := self.own(t, name)) is not None:
            return own
        if attribute is MISSING:
            if self.origin is not None and not has_own:
                t.guards.add(self.origin, "no_attr", name)
            return t.raise_no_attribute(f"'{self.type().__name__}' object", name)
        if isinstance(attribute, FunctionType):
            return BoundMethodValue(t.pinned(attribute), self)
        if isinstance(attribute, MethodDescriptorType | WrapperDescriptorType):
            return BoundMethodValue(BuiltinValue(attribute), self)
        raise Break("tensor_attribute", f"tensor.{name}")

    def _own_base(self, t: Tracer) -> Value | None:
        """Returns the tensor of the graph that this one is a view of; None if it is not known."""
        memory, view = self.fake.memory, self.fake.view_of  # type: ignore[attr-defined]
        if memory.input is not None or is_inference(self.fake) or torch.is_inference_mode_enabled():
            return None
        while view is not None:
            if view.func is torch.ops.aten.detach.default or not view.is_known_view:
                return None  # it shows no base
            view = view.parent.view_of
        return NONE if memory.root is self.fake else t.from_python(memory.root)

    def uncounted(self, t: Tracer) -> Value:
        """Returns a detached view; autograd does not count writes to it."""
        site = t.site_or(
            Break("autograd", "tensor.data, which is saved for a gradient, or changed")
        )
        made = t.torch_call(torch.Tensor.detach, [self], {})
        if isinstance(made, TensorValue) and made.fake.view_of is not None:
            made.fake.view_of = replace(made.fake.view_of, counts=False)
            t.recorder.history.data_sites.append(site)
        return made

    def _is_leaf(self, t: Tracer) -> Value:
        return t.look(t.wrap(real_is_leaf(self.real), self.origin.child("attr", "is_leaf")))

    def _is_known_leaf(self, t: Tracer) -> bool:
        if not is_leaf(self.fake) or self.real is None:
            return is_leaf(self.fake)
        return self.origin is not None and self._is_leaf(t) is TRUE

    def _has_own_gradient(self, t: Tracer) -> bool:
        """Whether `.grad` can be read without a warning: guards read it in each call."""
        if self.real is None:
            return is_leaf(self.fake)  # type: ignore[arg-type]
        if self.origin is not None and type(self.real) is not torch.nn.Parameter:
            # adds a guard before the one that reads `.grad`; parameters are leaves
            self._is_leaf(t)
        return self.new_gradient is not None or real_is_leaf(self.real)

    def gradient(self, t: Tracer) -> Value:
        """Returns the `.grad` of a leaf tensor of autograd."""
        if self.new_gradient is not None:
            return self.new_gradient
        if self.real is None:
            return NONE
        return t.look(t.wrap(self.real.grad, self.origin.child("attr", "grad")))  # type: ignore[union-attr]

    def set_gradient(self, t: Tracer, value: Value) -> None:
        t.change(self)
        self.new_gradient = value

    def effects(self, t: Tracer) -> list[Effect]:
        new = self.new_gradient
        own = [] if new is None else [Effect(self, write_gradient, new)]
        if self.new_data is not None:
            own.insert(0, Effect(self, write_data, self.new_data))
        return [*own, *super().effects(t)]

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        if is_data_descriptor(class_attribute(self.cls, name)):
            self.check_not_overridden(t, f"{name} = ...")
        if name == "data" and t.look(value) is self:
            return  # `Module.to` without a change
        if name == "grad" and self.real is not None and self._may_be_gradient(t.look(value)):
            return self.set_gradient(t, t.look(value))
        if name == "requires_grad" and not self.fake.requires_grad and t.look(value) is TRUE:
            return require_gradient(t, self)
        if name == "data" and self._set_data(t, t.look(value)):
            return
        if name == "data":
            t.recorder.history.replaced = self.fake.memory  # type: ignore[attr-defined]
        if is_data_descriptor(class_attribute(self.cls, name)) or name in SPECIAL_NAMES:
            raise Break("tensor_attribute", f"tensor.{name} = ...")
        self.write(t, name, value)

    def _set_data(self, t: Tracer, value: Value) -> bool:
        """Makes it a view of another tensor, but the same object. Returns False where autograd might have saved
        it before, or reports it differently."""
        if type(self) is not TensorValue or type(value) is not TensorValue:
            return False
        fakes = self.fake, value.fake
        if any(f.requires_grad for f in t.recorder.fakes) or fakes[0].device != fakes[1].device:
            return False
        if torch.is_inference_mode_enabled() or any(map(is_inference, fakes)):
            return False
        data = value.uncounted(t)
        assert isinstance(data, TensorValue)
        t.change(self)
        self.new_data, self.fake = data, data.fake
        t.tensors[id(data.fake)] = self
        return True

    def delattr_generic(self, t: Tracer, name: str) -> None:
        if name in SPECIAL_NAMES:
            raise Break("tensor_attribute", f"del tensor.{name}")
        super().delattr_generic(t, name)

    def _may_be_gradient(self, value: Value) -> bool:
        if isinstance(value, ConstValue):
            return value.type() is type(None)
        if not isinstance(value, TensorValue) or value.fake is self.fake:
            return False
        own, other = self.fake, value.fake
        properties = [(f.shape, f.dtype, f.device) for f in (own, other)]
        return properties[0] == properties[1] and value.type() in (torch.Tensor, torch.nn.Parameter)

    def truth(self, t: Tracer) -> bool:
        self.check_not_overridden(t, "bool(...)")
        return t.decide(self)

    def known_truth(self, t: Tracer) -> bool | None:
        """Returns its truth if that depends on no input, None otherwise."""
        known = known_value(self.fake, t.recorder)  # type: ignore[arg-type]
        return bool(known) if known is not None and known.numel() == 1 else None

    def contains(self, t: Tracer, item: Value) -> bool:
        self.check_not_overridden(t, "in")
        method = class_attribute(self.type(), "__contains__")  # noted: methods can be replaced
        if method is not CONTAINS or not isinstance(item, ConstValue | TensorValue):
            return super().contains(t, item)
        if not issubclass(item.type(), int | float | torch.Tensor):
            return super().contains(t, item)
        return t.torch_call(_contains, [self, item], {}).truth(t)

    def length(self, t: Tracer) -> int:
        self.check_not_overridden(t, "len(...)")
        if self.fake.ndim == 0:
            t.raise_(TypeError, "len() of a 0-d tensor")
        return int(self.fake.shape[0])

    def iterate(self, t: Tracer) -> Value:
        self.check_not_overridden(t, "iteration")
        if self.fake.ndim == 0:
            t.raise_(TypeError, "iteration over a 0-d tensor")
        return t.torch_call(torch.Tensor.unbind, [self, ConstValue(0)], {}).iterate(t)

    def getitem(self, t: Tracer, key: Value) -> Value:
        return t.tensor_item(self, key)

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        t.set_tensor_item(self, key, value)

    def key(self, t: Tracer) -> Any:
        identity_key(t, self)
        return self.fake  # one key for all sources of the same tensor

    def parts(self) -> list[Value]:
        return [value for value in self.attributes.values() if value is not DELETED]

    def rebuild(self, r: Rebuilder) -> None:
        r.load_output(self)
        self.rebuild_attributes(r)

    def rebuild_attributes(self, r: Rebuilder) -> None:
        """Writes code that sets the attributes of the tensor on top of the stack."""
        if self.attributes:
            r.keep(self)
            r.do(set_attributes, self, tuple(self.attributes), [*self.attributes.values()])


def is_torchs_property(attribute: Any) -> bool:
    """Whether reading a raw attribute asks `__torch_function__`. Those of `object`, such as `__class__`, do
    not."""
    return type(attribute) is GetSetDescriptorType and attribute.__objclass__ is torch._C.TensorBase


def write_gradient(tensor: Any, gradient: Any) -> None:
    """Called from new code."""
    tensor.grad = gradient


def write_data(tensor: Any, data: Any) -> None:
    """Called from new code."""
    tensor.data = data


CONTAINS = class_attribute(torch.Tensor, "__contains__")


def _contains(tensor: torch.Tensor, item: Any) -> torch.Tensor:
    return (item == tensor).any()
