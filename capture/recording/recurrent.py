"""Recurrent layers on the CPU that need gradients: one library call, and one for their derivative.

oneDNN makes what its derivative needs only in gradient mode, which is off while a graph runs. So an operator
of our own turns it on, below autograd. Only oneDNN knows the size of that data, so a layer of these sizes is
tried once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from frameloom.capture.shapes.iteration import empty
from frameloom.capture.shapes.registry import infer
from frameloom.capture.tensors.own_ops import own_op
from frameloom.capture.tensors.sized import has_sizes
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

layer = torch.ops.aten.mkldnn_rnn_layer.default


def record_rnn(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    kind = args[0].device.type
    if kind in recorder.modes.around and kind not in recorder.current_call.autocast:
        raise Break("unsupported_op", f"{func} without autocast, where the caller has it")
    if not recorder.current_call.is_followed:
        return recorder.pure(func, args, kwargs)
    tensors, rest = args[:7], args[7:]
    if any(has_sizes(t.shape, t.stride()) for t in tensors):
        raise Break("unsupported_op", f"{func} of sizes that vary, whose gradient is needed")
    known = infer(func, (*[t.meta for t in tensors], *rest), kwargs)
    given = tuple((t.dtype, tuple(t.shape), t.stride()) for t in tensors)
    hashable = tuple(tuple(a) if isinstance(a, list) else a for a in rest)
    metas = (*known[:3], empty((_workspace_size(given, hashable),), torch.uint8))
    made = recorder.new(metas, tensors[0].device)
    return recorder.pure(_operator(), args, kwargs, made)


@functools.lru_cache(maxsize=1024)
def _workspace_size(given: tuple[Any, ...], rest: tuple[Any, ...]) -> int:
    """Returns how many bytes such a layer saves for its derivative."""
    with torch._C._DisableTorchDispatch():
        tensors = [_zeros(*how) for how in given]
        return int(_with_derivative(*tensors, *rest)[3].numel())


def _zeros(dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype).zero_()


def _with_derivative(*args: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad():
        return layer(*args)


def _run(*args: Any) -> Any:
    # Under autograd, it is the layer itself, whose gradient also has a gradient.
    return layer(*args) if torch.is_grad_enabled() else _with_derivative(*args)


@functools.cache
def _operator() -> Any:
    schema = str(layer._schema).partition("(")[2]
    return own_op(f"rnn_layer({schema}", _run, key="CompositeImplicitAutograd")
