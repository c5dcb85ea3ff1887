"""`Fake`: a tensor without data that stands for a tensor of the captured program.

A wrapper subclass around a meta tensor: right sizes, strides, dtype and device, no storage.  PyTorch's own fake tensor
mode is not used because creating one imports a second's worth of modules.  A Fake also knows its node in the
recorded graph; `tensors/functionalize.py` keeps that up to date when memory it shares is written.
"""

from __future__ import annotations

from typing import Any

import torch

from frameloom.errors import Break


class Fake(torch.Tensor):
    """Fields beside the tensor's own: `meta` (the meta tensor), `node` (fx node of its value), `version` (of its memory
    when `node` was right), `memory` (shared by all tensors over one storage), `view_of` (how it was made from another),
    `by_function` (the name of the program's autograd Function that returned it,
    as which result, and of how many)."""

    meta: torch.Tensor
    node: Any
    version: int
    memory: Any
    view_of: Any
    by_function: tuple[str, int, int] | None = None
    made_at: Any = None  # where in the program, if it has a history

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, meta: torch.Tensor, device: torch.device, requires_grad: bool = False) -> Fake:
        if torch.is_inference_mode_enabled():
            # A tensor made in that mode does not show of what ops a composite one consists.
            with torch.inference_mode(False):
                return cls(meta, device, requires_grad)
        kind = getattr(meta, "fake_class", None)  # of tensors whose sizes vary
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
        # Lazily conjugated or negated: PyTorch resolves that above the recorder, as eager does.
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
        # Every op on a Fake is meant to be met by the recorder's mode first.
        raise Break("unsupported_tensor", f"{func} on a traced tensor outside of recording")


def fake_like(tensor: torch.Tensor) -> Fake:
    """A Fake with the metadata of a real strided tensor (not yet in any graph)."""
    meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return Fake(meta, tensor.device, tensor.requires_grad)
