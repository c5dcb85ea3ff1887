"""Decides which programs a CUDA graph may replace: they launch all their work on one GPU, the launches do not
depend on data, and no step waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from frameloom.ir.program import (
    Buffer,
    Check,
    Extern,
    Kernel,
    KernelList,
    Kind,
    Program,
    View,
    is_cuda,
)

FEW = 8  # with fewer steps, launches cost no more than a replay and its copies

# Library calls that neither wait for the GPU, nor read data on the CPU, nor draw random numbers (except for
# dropout, which has to be off).
REPLAYABLE = frozenset([
    "mm", "bmm", "addmm", "baddbmm", "_int_mm", "_scaled_mm", "convolution",
    "cudnn_batch_norm", "native_batch_norm", "native_layer_norm", "native_group_norm",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "max_pool3d_with_indices",
    "avg_pool3d", "_adaptive_avg_pool3d", "upsample_nearest2d", "upsample_bilinear2d",
    "upsample_bicubic2d", "grid_sampler_2d", "pixel_shuffle", "cat", "clone", "copy", "sort", "topk",
    "cumsum", "cumprod", "logcumsumexp", "gather", "index_select", "embedding", "mul", "add", "sub",
])  # fmt: skip


def reason_against(program: Program) -> str | None:
    """Returns why calls of this program cannot be replayed; None if they can."""
    if len(program.steps) < FEW:
        return f"{len(program.steps)} steps are launched as quickly one by one"
    devices = {b.device for b in _buffers(program)}
    devices |= {str(t.device) for _, t in program.constants}
    if len(devices) != 1 or not is_cuda(next(iter(devices))):
        return f"it works on {', '.join(sorted(devices)) or 'nothing'}"
    if any(b.dtype is None and b.torch_dtype is None for b in program.inputs):
        return "it is given something else than tensors"
    if program.numbers or any(b.kind is Kind.NUMBER for b in program.inputs):
        return "it computes with numbers that vary"
    if any(not isinstance(n, int) for b in _buffers(program) for n in (*b.shape, *b.strides)):
        return "its sizes change from call to call"
    for step in program.steps:
        if isinstance(step, Extern) and (reason := _against_call(step)):
            return reason
    returned = [o.buffer for o in program.outputs if isinstance(o, View)]
    if any(b.kind not in (Kind.OUTPUT, Kind.EXTERN) for b in returned):
        return "it returns a view of what it is given or holds"
    if any(isinstance(o, View) and o.bits for o in program.outputs):
        return "its results are conjugated or negated when they are read"
    return "its results share memory" if len(set(returned)) < len(returned) else None


def device_of(program: Program) -> str:
    """Returns the device of a program that uses only one."""
    return next(b.device for b in _buffers(program))


def _against_call(step: Extern) -> str | None:
    packet, _, overload = step.target.removeprefix("aten.").partition(".")
    if not step.target.startswith("aten.") or packet not in REPLAYABLE:
        return f"{step.target} may wait for the GPU"
    schema = getattr(getattr(torch.ops.aten, packet), overload)._schema
    given = dict(zip((a.name for a in schema.arguments), step.args, strict=False))
    given |= dict(step.kwargs)
    return f"{step.target} draws random numbers" if given.get("dropout_p") else None


def _buffers(program: Program) -> Iterator[Buffer]:
    yield from program.inputs
    for step in program.steps:
        if isinstance(step, Kernel):
            yield from (s.buffer for s in step.stores)
        elif isinstance(step, KernelList):
            yield from (b for r in step.instances for b, _ in r.columns)
        elif isinstance(step, Check):
            yield step.buffer
        else:
            yield from (b for b in step.results if b is not None)
            yield from _viewed([*step.args, *(value for _, value in step.kwargs)])


def _viewed(value: Any) -> Iterator[Buffer]:
    if isinstance(value, View):
        yield value.buffer
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _viewed(one)
