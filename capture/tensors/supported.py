"""Which tensors can be recorded: those that come in, and those that a recorded call gives."""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.tensors.fake import Fake
from frameloom.errors import Break, first_line

# PyTorch 2.11 still has tensors whose dimensions have names, 2.13 has not.
_has_names = getattr(torch.Tensor, "has_names", lambda tensor: False)


def check_supported(tensor: torch.Tensor) -> None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise Break("tensor_subclass", type(tensor).__qualname__)
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "nested" if tensor.is_nested else f"layout {tensor.layout}"
        raise Break("unsupported_tensor", kind)
    if tensor.is_conj() or tensor.is_neg():
        raise Break("unsupported_tensor", "a lazily conjugated or negated tensor")
    check_names(tensor)
    check_compiled(tensor.device)
    if tensor.requires_grad:
        # To which a tensor with a history was written, a part of it: no Fake can be made so.
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise Break("unsupported_tensor", f"dtype {tensor.dtype} with a history")
        if tensor._is_view():
            _check_history(tensor)


def _check_history(view: torch.Tensor) -> None:
    """Where its base was written to, autograd makes that of a view anew, or refuses any use of one that was made without gradients, or with others by
    one op.  The Fake knows nothing of that, and what nobody uses of the result would be left out.

    A view is still a leaf to which nothing may be written, where nobody has looked at it since its base got a history.  Nor do we look then."""
    holds_none, base = torch.ops.aten.is_leaf.default, view._base
    if torch.is_grad_enabled() and holds_none(view) and base is not None and not holds_none(base):
        raise Break("autograd", "a view that was made before its base got a history")
    try:
        _ = view.grad_fn
    except RuntimeError as error:
        raise Break("autograd", first_line(error)) from error


def check_names(tensor: torch.Tensor) -> None:
    """Raises Break for named dimensions, which no graph has."""
    if _has_names(tensor):
        raise Break("unsupported_tensor", "a tensor whose dimensions have names")


def check_compiled(device: torch.device) -> None:
    """Raises Break for devices that no kernels are written for ("meta" among them)."""
    if device.type not in ("cpu", "cuda"):
        raise Break("unsupported_tensor", f"device {device}")


def check_together(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises Break for an op on tensors of several devices, where a graph knows one place for the results: most are refused,
    `torch._foreach_` ops work on each item where it lies.  Numbers, and places to index with, may be on the CPU."""
    devices = set()
    for a in (*args, *kwargs.values()):
        if isinstance(a, Fake):
            if a.device.type != "cpu":
                devices.add(a.device)
        elif isinstance(a, list | tuple):
            own = {x.device for x in a if isinstance(x, Fake)}
            if len(own) > 1:
                raise Break("unsupported_op", f"{func} of a list of tensors on several devices")
            devices |= {device for device in own if device.type != "cpu"}
    if len(devices) > 1:
        raise Break(
            "unsupported_op", f"{func} of tensors on {' and '.join(sorted(map(str, devices)))}"
        )


def check_layouts(
    func: Any,
    sparse: tuple[tuple[int, str], ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_followed: bool,
) -> None:
    """Raises Break for what makes other tensors than strided ones: at once, or as its gradient.  `sparse`: the arguments that ask for the second."""
    if kwargs.get("layout") not in (None, torch.strided):
        raise Break("unsupported_tensor", f"layout {kwargs['layout']}")
    for position, name in sparse if is_followed else ():
        if args[position] if position < len(args) else kwargs.get(name, False):
            raise Break("unsupported_tensor", f"{func} whose gradient is sparse")


def dtypes_of(result: Any) -> list[torch.dtype]:
    parts = result if isinstance(result, list | tuple) else [result]
    return [part.dtype for part in parts if isinstance(part, torch.Tensor)]


def check_result(result: Any, fn: Any) -> None:
    if isinstance(result, torch.Tensor):
        if not isinstance(result, Fake):
            raise Break(
                "unsupported_call",
                f"{getattr(fn, '__name__', fn)} makes a tensor outside of dispatch",
            )
        check_names(result)
    elif isinstance(result, list | tuple):
        for r in result:
            check_result(r, fn)
