"""Tensors inside the function transforms of torch.func (`vmap`, `grad`, ...) while these are captured.

PyTorch wraps the tensors that it hands to a transformed function: a batched tensor hides a dimension, and a
tensor of `grad` has a history of its own. Such a tensor wraps a Fake, directly or over other levels of
transforms. The wrapper has no node and no memory; only the Fake inside has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.values.base import Value
from frameloom.capture.values.tensor import TensorValue
from frameloom.errors import Avoid, Break

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

# What the wrapper answers in another way than a Fake, or what is only known of memory.
REFUSED = frozenset(
    ["grad", "grad_fn", "data", "is_leaf", "_base", "names", "_version", "output_nr"]
)


class Transform:
    """One call of a transformed function. `site`: where the program calls it."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self.has_ended = False


class WrappedTensor(TensorValue):
    """A tensor of a level of `transform`. After the transform it must not be used: eager's own wrappers are
    dead by then, and plain Python runs such a program."""

    def __init__(self, wrapper: torch.Tensor, transform: Transform) -> None:
        self.transform = transform
        super().__init__(wrapper)

    @property
    def fake(self) -> Any:  # type: ignore[override]
        if self.transform.has_ended:
            raise Avoid(self.transform.site)
        return self._wrapper

    @fake.setter
    def fake(self, wrapper: torch.Tensor) -> None:
        self._wrapper = wrapper

    def getattr(self, t: Tracer, name: str) -> Value:
        if name in REFUSED:
            raise Break("tensor_attribute", f"tensor.{name} inside a function transform")
        return super().getattr(t, name)

    def setattr(self, t: Tracer, name: str, value: Value) -> None:
        raise Break("tensor_attribute", f"tensor.{name} = ... inside a function transform")

    def truth(self, t: Tracer) -> bool:
        raise Break("data_dependent_branch", "bool(tensor) inside a function transform")

    def known_truth(self, t: Tracer) -> bool | None:
        return None

    def check_rebuild(self) -> None:
        raise Avoid(self.transform.site)


def refuse_inside(t: Tracer, what: str) -> None:
    """Breaks inside a function transform."""
    if t.backward.transforms:
        raise Break("library_call", f"{what} inside a function transform")
