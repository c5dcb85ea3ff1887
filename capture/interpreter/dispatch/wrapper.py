"""Instances of classes with a `__torch_dispatch__`: each op on them is a call of that function.

Such a tensor has a layout, and no data of its own; what it stands for is in its attributes. So the graph does
not know it: its tensors are inputs and results of the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from frameloom.capture.guards.class_lookup import MISSING, class_attribute
from frameloom.capture.interpreter.dispatch.stand_in import StandIn, stand_in_of_real
from frameloom.capture.values.base import Effect, Value
from frameloom.capture.values.const import NONE, TRUE
from frameloom.capture.values.instance import InstanceValue
from frameloom.capture.values.opaque import OpaqueValue
from frameloom.capture.values.subclass import SubclassValue, is_of_tensors
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.guards.source import Origin
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.resume.reconstruct import Rebuilder

# What autograd, or memory that the capture does not know, would answer.
REFUSED = frozenset(["grad", "_base", "names", "_version", "output_nr"])


class WrapperValue(SubclassValue):
    """`made_by`: the arguments of `_make_wrapper_subclass` behind the class, for a tensor that the program made
    in this call. `writes`: how many ops wrote to it. `view_at`: where an op made it as a view of another
    tensor; autograd knows that, so plain Python must make it if somebody else gets it."""

    mutable = (*SubclassValue.mutable, "writes")

    def __init__(
        self,
        fake: StandIn,
        cls: type,
        real: torch.Tensor | None = None,
        origin: Origin | None = None,
        made_by: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(fake, real, origin, cls)
        fake.value = self
        self.made_by = made_by
        self.is_inference = torch.is_inference_mode_enabled()
        self.writes = 0
        self.view_at: Any = None
        self.base: WrapperValue | None = None  # autograd counts writes for both together

    def getattr(self, t: Tracer, name: str) -> Value:
        if name in REFUSED or (name in ("is_leaf", "grad_fn") and self.fake.requires_grad):
            raise Break("tensor_attribute", f"{self.describe()}.{name}")
        if name in ("is_leaf", "grad_fn"):
            return TRUE if name == "is_leaf" else NONE
        if name == "data" and is_of_tensors(name, class_attribute(self.cls, name)):
            return t.torch_call(torch.Tensor.data.__get__, [self], {})  # type: ignore[attr-defined]
        return super().getattr(t, name)

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        attribute = class_attribute(self.cls, name)
        own = class_attribute(self.cls, "__setattr__")
        is_tensors = attribute is not MISSING and is_of_tensors(name, attribute)
        if own is not object.__setattr__ or is_tensors:
            raise Break("tensor_attribute", f"{self.describe()}.{name} = ...")
        InstanceValue.setattr(self, t, name, value)

    def truth(self, t: Tracer) -> bool:
        self._refuse("bool")

    def known_truth(self, t: Tracer) -> bool | None:
        return None

    def _refuse(self, what: str) -> NoReturn:
        raise Break("tensor_subclass", f"{what}({self.describe()})")

    def note_write(self, t: Tracer) -> None:
        if self.base is not None:
            self.base.note_write(t)
        t.change(self)
        self.writes += 1

    # --- the end of a capture
    def effects(self, t: Tracer) -> list[Effect]:
        counted = [Effect(self, count_writes, self.writes)] if self.writes else []
        return [*counted, *super().effects(t)]

    def check_rebuild(self) -> None:
        if self.view_at is not None:
            raise Avoid(self.view_at)

    def rebuild(self, r: Rebuilder) -> None:
        assert self.made_by is not None
        r.call(make_wrapper, self.cls, *self.made_by, self.is_inference)
        if self.writes:
            r.keep(self)
            r.do(count_writes, self, self.writes)
        self.rebuild_attributes(r)


def wrapper_of(t: Tracer, real: torch.Tensor, origin: Origin) -> Value:
    """Returns the value of a tensor from before the call."""
    try:
        fake = stand_in_of_real(real)
    except Break:
        return OpaqueValue(real, origin)
    t.guards.add_tensor(origin, real)
    value = t.tensors[id(fake)] = WrapperValue(fake, type(real), real, origin)
    return value


def new_wrapper(
    t: Tracer, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> WrapperValue:
    """Returns the value of a tensor that the program makes."""
    if any(name.startswith("dispatch_") for name in kwargs):
        raise Break("tensor_subclass", f"{cls.__name__}, which computes its layout")
    fake = torch.Tensor._make_wrapper_subclass(StandIn, *args, **kwargs)
    value = t.tensors[id(fake)] = WrapperValue(fake, cls, made_by=(args, kwargs))
    return value


def make_wrapper(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], is_inference: bool
) -> torch.Tensor:
    """Called from new code."""
    with torch.inference_mode(is_inference):
        return torch.Tensor._make_wrapper_subclass(cls, *args, **kwargs)  # type: ignore[no-any-return]


def count_writes(tensor: torch.Tensor, many: int) -> None:
    """Called from new code: autograd counts the writes to a tensor."""
    if not tensor.is_inference():
        for _ in range(many):
            torch.autograd.graph.increment_version(tensor)
