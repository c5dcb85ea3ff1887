"""`StandIn`: a tensor without data, which PyTorch calls the program's `__torch_dispatch__` for.

PyTorch decides which ops a torch function consists of. So the capture runs the function on stand-ins, which
have the layouts of the program's tensors. Each stand-in knows the value of its tensor.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from frameloom.capture.tensors.supported import check_names
from frameloom.errors import Break


class StandIn(torch.Tensor):
    """`value`: that of the tensor that it stands for."""

    value: Any

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Break("tensor_subclass", f"{func} outside of the dispatch of ops")


def stand_in(tensor: torch.Tensor, is_inference: bool) -> StandIn:
    """Returns a stand-in with the layout of a tensor. Symbolic sizes are specialized."""
    if tensor.is_conj() or tensor.is_neg():
        raise Break("unsupported_tensor", "a lazily conjugated or negated tensor")
    with torch.inference_mode(is_inference):
        made: StandIn = torch.Tensor._make_wrapper_subclass(
            StandIn,
            [int(n) for n in tensor.shape],
            strides=[int(n) for n in tensor.stride()],
            storage_offset=int(tensor.storage_offset()),
            dtype=tensor.dtype,
            layout=tensor.layout,
            device=tensor.device,
            requires_grad=tensor.requires_grad,
        )
    return made


def stand_in_of_real(real: torch.Tensor) -> StandIn:
    """Returns a stand-in for a tensor of the program whose class has a `__torch_dispatch__`."""
    with Unasked():
        if real.layout is not torch.strided or real.is_quantized or real.is_nested:
            raise Break("unsupported_tensor", type(real).__qualname__)
        check_names(real)
        return stand_in(real, real.is_inference())


class Unasked(TorchDispatchMode):
    """While it is active, a tensor must not ask its class about its layout: that runs code of the program."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see recording/recorder.py

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        raise Break("tensor_subclass", f"a tensor that computes {func}")
