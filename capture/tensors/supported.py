"""Checks which tensors can be recorded: inputs, and results of recorded calls."""

from __future__ import annotations

from typing import Any

import torch

from frameloom.capture.tensors.fake import Fake, is_wrapper
from frameloom.errors import Break, first_line

# PyTorch 2.11 still has tensors with named dimensions; 2.13 does not.
_has_names = getattr(torch.Tensor, "has_names", lambda tensor: False)


def check_supported(tensor: torch.Tensor) -> None:
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise Break("tensor_subclass", type(tensor).__qualname__)
    if is_wrapper(tensor):
        raise Break("unsupported_tensor", "a tensor that left its function transform")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "nested" if tensor.is_nested else f"layout {tensor.layout}"
        raise Break("unsupported_tensor", kind)
    if tensor.is_conj() or tensor.is_neg():
        raise Break("unsupported_tensor", "a lazily conjugated or negated tensor")
    check_names(tensor)
    if not tensor.is_meta:  # those are only passed around, as parameters that others replace
        check_compiled(tensor.device)
    if tensor.requires_grad:
        # An integer tensor gets a history if a tensor with a history is written to a part of it. No Fake can
        # be made so.
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise Break("unsupported_tensor", f"dtype {tensor.dtype} with a history")
        if tensor._is_view():
            _check_history(tensor)


def _check_history(view: torch.Tensor) -> None:
    """Raises Break for views whose history autograd would change or refuse. If the base of a view was written
    to, autograd rebuilds the view's history. It refuses any use of a view that was made without gradients,
    or together with others by one op. The Fake does not know this, and an unused part of the result would be
    left out.

    A view is still a leaf that must not be written if its history was not read since its base got one. Then
    we do not read it either.
    """
    holds_none, base = torch.ops.aten.is_leaf.default, view._base
    if torch.is_grad_enabled() and holds_none(view) and base is not None and not holds_none(base):
        raise Break("autograd", "a view that was made before its base got a history")
    try:
        _ = view.grad_fn
    except RuntimeError as error:
        raise Break("autograd", first_line(error)) from error


def check_names(tensor: torch.Tensor) -> None:
    """Raises Break for named dimensions, which graphs do not support."""
    if _has_names(tensor):
        raise Break("unsupported_tensor", "a tensor whose dimensions have names")


def check_compiled(device: torch.device) -> None:
    """Raises Break for devices without kernels ("meta" among them)."""
    if device.type not in ("cpu", "cuda"):
        raise Break("unsupported_tensor", f"device {device}")


def check_together(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises Break for an op on tensors of several devices, because a graph has one device for the results.
    PyTorch refuses most such ops; `torch._foreach_` ops work on each item on its device. Numbers and indices
    may be on the CPU."""
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
    """Raises Break for an op that makes a tensor that is not strided, as its result or as its gradient.
    `sparse`: the arguments that request a sparse gradient."""
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
        if not isinstance(result, Fake) and not is_wrapper(result):
            raise Break(
                "unsupported_call",
                f"{getattr(fn, '__name__', fn)} makes a tensor outside of dispatch",
            )
        check_names(result)
    elif isinstance(result, list | tuple):
        for r in result:
            check_result(r, fn)
    elif isinstance(result, dict):
        check_result(list(result.values()), fn)
    elif hasattr(type(result), "__next__"):  # it holds tensors of the capture where nobody looks
        raise Break("unsupported_call", f"{getattr(fn, '__name__', fn)} returns an iterator")
