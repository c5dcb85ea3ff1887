"""Zeros without memory, which some derivatives of PyTorch return (that of `sgn`). In eager mode a product
with them is such zeros again, for any other factor; most other ops get zeros with memory. Kernels do not
support them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.schema import properties_of
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

aten = torch.ops.aten
ZEROS = aten._efficientzerotensor.default


def record_zeros(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Fake:
    made: Fake = recorder.pure(func, args, kwargs)
    recorder.history.zeros[id(made)] = made
    return made


def call_with_zeros(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Runs a call while there are such zeros. Source: `mul_zerotensor` and others of ATen's BinaryOps, and
    its ZeroTensorFallback."""
    is_zeros = recorder.history.zeros.__contains__
    filled = {
        id(a): _filled(recorder, a)
        for a in torch.utils._pytree.tree_leaves((args, kwargs))
        if is_zeros(id(a))
    }
    if not filled:
        return recorder.dispatched(func, args, kwargs)
    if properties_of(func).behaviour == "write" and is_zeros(id(args[0])):
        raise Break("unsupported_op", f"{func} of zeros without memory")
    given, options = torch.utils._pytree.tree_map(lambda a: filled.get(id(a), a), (args, kwargs))
    result = recorder.dispatched(func, given, options)
    stays = func is aten.mul.Tensor or (func is aten.div.Tensor and not is_zeros(id(args[1])))
    if not stays:
        return result
    return record_zeros(
        recorder, ZEROS, (list(result.shape),), {"dtype": result.dtype, "device": result.device}
    )


def _filled(recorder: Recorder, zeros: Fake) -> Fake:
    options = {"dtype": zeros.dtype, "device": zeros.device}
    filled: Fake = recorder.pure(aten.zeros.default, (list(zeros.shape),), options)
    return filled
