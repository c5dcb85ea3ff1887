"""Instances of subclasses of torch.Tensor.

Torch functions treat them as tensors while `__torch_function__` is off (interpreter/torch_function.py);
otherwise the class's `__torch_function__` decides. An instance made by the capture is an alias of a tensor
of the graph: new code makes it from that one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.guards.class_lookup import MISSING, class_attribute
from frameloom.capture.values.base import Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.instance import InstanceValue
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder

DEFAULT = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
OFF = torch._C._disabled_torch_function_impl
DISPATCH = "__torch_dispatch__"


def has_history(fake: Any) -> bool:
    """Whether autograd followed an op that made the tensor."""
    try:
        return fake.requires_grad and not fake.is_leaf
    except RuntimeError:  # a view that was written to
        return True


class NewLeaf:
    """A tensor that `_make_subclass` has just made: it has no history, and may begin one. `fakes`: all of the
    recorder; `site`: where it was made."""

    def __init__(self, fakes: list[Any], site: Any) -> None:
        self.fakes, self.count, self.site = fakes, len(fakes), site

    def is_followed(self) -> bool:
        """Whether a history may begin there. New code makes the tensor behind the graph, too late for one."""
        return any(map(has_history, self.fakes[self.count :]))


class SubclassValue(TensorValue):
    is_output = False

    def __init__(
        self,
        fake: torch.Tensor,
        real: torch.Tensor | None = None,
        origin: Origin | None = None,
        cls: type = torch.Tensor,
        inner: TensorValue | None = None,
        leaf: NewLeaf | None = None,
    ) -> None:
        super().__init__(fake, real, origin, cls)
        self.inner = inner  # the tensor that it is an alias of, if the capture made it
        self.leaf = leaf  # if `_make_subclass` made it
        self.modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())

    def describe(self) -> str:
        return self.cls.__name__

    def getattr(self, t: Tracer, name: str) -> Value:
        if isinstance(class_attribute(self.cls, "__getattribute__"), FunctionType):
            raise Break("tensor_subclass", f"{self.describe()}.{name}")
        attribute = class_attribute(self.cls, name)
        if attribute is MISSING or not is_of_tensors(name, attribute):
            return self.generic_getattr(t, name)
        return super().getattr(t, name)

    def is_overridden(self, t: Tracer) -> bool:
        return super().is_overridden(t) or function_of(t, self) not in (None, DEFAULT)

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        own = class_attribute(self.cls, "__setattr__")
        if own is not object.__setattr__:
            raise Break("tensor_attribute", f"{self.describe()}.{name} = ...")
        attribute = class_attribute(self.cls, name)
        if attribute is not MISSING and is_of_tensors(name, attribute):
            if self.is_overridden(t):
                raise Break("tensor_attribute", f"{self.describe()}.{name} = ...")
            super().setattr(t, name, value)
        else:
            InstanceValue.setattr(self, t, name, value)

    # --- special methods
    def call_special(self, t: Tracer, name: str, *args: Value) -> Value | None:
        """Returns the result of a special method that the program defines, None if there is none."""
        method = class_attribute(self.cls, name)
        if is_of_tensors(name, method):
            if isinstance(method, FunctionType) and self.is_overridden(t):
                return t.look(t.call_method(self.cls, name, [self, *args]))
            return None
        if not isinstance(method, FunctionType):
            raise Break("tensor_subclass", f"{self.describe()}.{name}(...)")
        return t.look(t.call_method(self.cls, name, [self, *args]))

    def truth(self, t: Tracer) -> bool:
        result = self.call_special(t, "__bool__")
        if result is not None and result.type() is bool:
            return result.truth(t)
        if result is not None or self.is_overridden(t):
            raise Break("tensor_subclass", f"bool({self.describe()})")
        return super().truth(t)

    def length(self, t: Tracer) -> int:
        result = self.call_special(t, "__len__")
        if result is None:
            return super().length(t)
        if not isinstance(result, ConstValue) or type(result.real) is not int or result.real < 0:
            raise Break("tensor_subclass", f"len({self.describe()})")
        return result.real

    def iterate(self, t: Tracer) -> Value:
        result = self.call_special(t, "__iter__")
        return super().iterate(t) if result is None else result.iterate(t)

    def contains(self, t: Tracer, item: Value) -> bool:
        result = self.call_special(t, "__contains__", item)
        return super().contains(t, item) if result is None else result.truth(t)

    def getitem(self, t: Tracer, key: Value) -> Value:
        result = self.call_special(t, "__getitem__", key)
        return super().getitem(t, key) if result is None else result

    def setitem(self, t: Tracer, key: Value, value: Value) -> None:
        if self.call_special(t, "__setitem__", key, value) is None:
            super().setitem(t, key, value)

    def key(self, t: Tracer) -> Any:
        if not is_of_tensors("__hash__", class_attribute(self.cls, "__hash__")):
            raise Break("tensor_subclass", f"hash({self.describe()})")
        return super().key(t)

    # --- the end of a capture
    def parts(self) -> list[Value]:
        return super().parts() if self.inner is None else [self.inner, *super().parts()]

    def check_rebuild(self) -> None:
        if self.leaf is not None and self.leaf.is_followed():
            raise Avoid(self.leaf.site)

    def rebuild(self, r: Rebuilder) -> None:
        if self.leaf is not None:
            r.call(make_subclass, self.inner, self.cls, self.fake.requires_grad)
            return self.rebuild_attributes(r)
        r.call(as_subclass, self.inner, self.cls, *self.modes)
        self.rebuild_attributes(r)


def as_subclass(
    tensor: torch.Tensor, cls: type, with_gradients: bool, in_inference: bool
) -> torch.Tensor:
    """Called from new code: makes the alias in the modes that the program made it in."""
    if (with_gradients, in_inference) == (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    ):
        return tensor.as_subclass(cls)  # type: ignore[arg-type, type-var]
    with torch.inference_mode(in_inference), torch.set_grad_enabled(with_gradients):
        return tensor.as_subclass(cls)  # type: ignore[arg-type, type-var]


def make_subclass(tensor: torch.Tensor, cls: type, requires_grad: bool) -> torch.Tensor:
    """Called from new code."""
    return torch.Tensor._make_subclass(cls, tensor, requires_grad)  # type: ignore[no-any-return]


def is_of_subclass(example: Any) -> bool:
    plain = (torch.Tensor, torch.nn.Parameter)
    return isinstance(example, torch.Tensor) and type(example) not in plain


def with_functions_off(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls the graph past the `__torch_function__` of its inputs."""

    def run(*inputs: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return compiled(*inputs)

    return run


def is_of_tensors(name: str, attribute: Any) -> bool:
    """Whether a class inherits an attribute from torch.Tensor."""
    return attribute is class_attribute(torch.Tensor, name)


def function_of(t: Tracer, value: Value) -> Any:
    """Returns the function that `__torch_function__` of the value's class calls; None if torch functions
    do not call it."""
    if not isinstance(value, InstanceValue) or t.settings.functions_are_off:
        return None
    cls = value.type()
    if cls in (torch.Tensor, torch.nn.Parameter):
        return None
    function = class_attribute(cls, "__torch_function__")
    if function is MISSING or function is OFF:
        return None
    if not isinstance(function, classmethod) or not isinstance(function.__func__, FunctionType):
        raise Break("tensor_subclass", f"{value.describe()}.__torch_function__")
    return function.__func__


# What the capture reads of tensors. A class that computes one of these, such as that of lazy parameters, may
# raise there or have another answer.
READ_BY_US = (
    "shape", "dtype", "device", "layout", "size", "stride", "dim", "ndim", "numel", "requires_grad", "is_leaf", "grad_fn", "grad",
    "_base", "_is_view", "_version", "is_inference", "element_size", "itemsize", "storage_offset", "data_ptr", "untyped_storage",
    "is_conj", "is_neg", "is_floating_point", "is_complex", "is_quantized", "is_nested", "is_contiguous", "is_cpu",
)  # fmt: skip


def is_recordable(cls: type) -> bool:
    """Whether ops on instances are those on plain tensors: no code of the program runs below autograd."""
    return is_of_tensors(DISPATCH, class_attribute(cls, DISPATCH)) and is_known(cls)


def dispatch_of(cls: type) -> FunctionType | None:
    """Returns the function of the program that computes ops on instances; None if there is none."""
    function = class_attribute(cls, DISPATCH)
    if not isinstance(function, classmethod) or not is_known(cls):
        return None
    return function.__func__ if isinstance(function.__func__, FunctionType) else None


def is_known(cls: type) -> bool:
    """Whether what the capture reads of instances is what PyTorch knows of them."""
    return (
        class_attribute(cls, "__getattribute__") is object.__getattribute__
        and class_attribute(cls, "__del__") is MISSING
        and all(is_of_tensors(name, class_attribute(cls, name)) for name in READ_BY_US)
        and str(cls.__module__).partition(".")[0] != "frameloom"
    )
