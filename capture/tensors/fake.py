"""`Fake`: a tensor without data that represents a tensor of the captured program.

A Fake is a wrapper subclass around a meta tensor: it has the right sizes, strides, dtype and device, and no
storage. PyTorch's own fake tensor mode is not used, because creating one imports modules for about a second.
A Fake also knows its node in the recorded graph; `tensors/functionalize.py` updates the node when memory that
the Fake shares is written.
"""

from __future__ import annotations

from typing import Any

import torch

from frameloom.errors import Break


class Fake(torch.Tensor):
    """Fields besides the tensor's own: `meta` (the meta tensor), `node` (fx node of its value), `version` (of
    its memory when `node` was right), `counted` (how many writes autograd counts, where the views of it have
    no count of their own), `memory` (shared by all tensors over one storage), `view_of` (how it was made from
    another), `by_function` (the name of the program's autograd Function that returned it, which
    result it is, and the number of results)."""

    meta: torch.Tensor
    node: Any
    version: int
    counted: int = 0
    memory: Any
    view_of: Any
    by_function: tuple[str, int, int] | None = None
    made_at: Any = None  # the place in the program, if the tensor has a history

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, meta: torch.Tensor, device: torch.device, requires_grad: bool = False) -> Fake:
        if torch.is_inference_mode_enabled():
            # For a tensor made in inference mode, PyTorch does not show which ops a composite op consists of.
            with torch.inference_mode(False):
                return cls(meta, device, requires_grad)
        kind = getattr(meta, "fake_class", None)  # set for tensors with symbolic sizes
        if kind is not None:
            sized: Fake = kind.make(meta, device, requires_grad)
            return sized
        fake: Fake = torch.Tensor._make_wrapper_subclass(
            cls,
            meta.shape,
            strides=meta.stride(),
            storage_offset=meta.storage_offset(),
            dtype=meta.dtype,
            layout=meta.layout,
            device=device,
            requires_grad=requires_grad,
        )
        # Lazily conjugated or negated tensors: PyTorch resolves these above the recorder, as in eager mode.
        if meta.is_conj():
            torch._C._set_conj(fake, True)
        if meta.is_neg():
            torch._C._set_neg(fake, True)
        fake.meta = meta
        fake.node = fake.memory = fake.view_of = None
        fake.version = 0
        return fake

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Fake({self.dtype}, {tuple(self.shape)}, node={self.node})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # The recorder's mode should handle every op on a Fake first.
        raise Break("unsupported_tensor", f"{func} on a traced tensor outside of recording")


is_wrapper = torch._C._functorch.is_functorch_wrapped_tensor


def innermost(tensor: torch.Tensor) -> Any:
    """Returns the tensor inside of all wrappers of function transforms."""
    while is_wrapper(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def fake_like(tensor: torch.Tensor) -> Fake:
    """Returns a Fake with the metadata of a real strided tensor (not yet in any graph)."""
    meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return Fake(meta, tensor.device, tensor.requires_grad)
