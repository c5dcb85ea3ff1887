"""Decides which programs a CUDA graph may replace: they launch all their work on one GPU, the launches do not
depend on data, and no step waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from frameloom.ir.library import overload
from frameloom.ir.program import Buffer, Extern, Kind, Program, View, is_cuda

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
    for call in program.library_calls:
        if reason := _against_call(call):
            return reason
    returned = program.returned
    if any(b.kind not in (Kind.OUTPUT, Kind.EXTERN) for b in returned):
        return "it returns a view of what it is given or holds"
    if any(isinstance(o, View) and o.bits for o in program.outputs):
        return "its results are conjugated or negated when they are read"
    return "its results share memory" if len(set(returned)) < len(returned) else None


def device_of(program: Program) -> str:
    """Returns the device of a program that uses only one."""
    return next(b.device for b in _buffers(program))


def _against_call(step: Extern) -> str | None:
    packet = step.target.removeprefix("aten.").split(".")[0]
    if not step.target.startswith("aten.") or packet not in REPLAYABLE:
        return f"{step.target} may wait for the GPU"
    arguments = overload(step.target)._schema.arguments
    given = dict(zip((a.name for a in arguments), step.args, strict=False))
    given |= dict(step.kwargs)
    return f"{step.target} draws random numbers" if given.get("dropout_p") else None


def _buffers(program: Program) -> Iterator[Buffer]:
    yield from program.inputs
    for step in program.steps:
        yield from step.buffers
