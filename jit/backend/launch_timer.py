"""Measures the time of kernels on a GPU.  They run on tensors made for this, never on those of the program.

Before each launch a large tensor is written.  So the L2 cache has none of the kernel's data, and the GPU is
busy while the CPU prepares the launch: the events then measure only the kernel.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch

from frameloom.codegen.triton.chip import chip_of
from frameloom.codegen.triton.launch import LaunchEntry, LaunchSource
from frameloom.errors import FrameloomError
from frameloom.ir.program import Buffer
from frameloom.runtime import _runtime
from frameloom.runtime.build.launch import load
from frameloom.runtime.build.triton_compiler import Cubin
from frameloom.runtime.spec import BufferSpec, LaunchCall, PlanSpec

ROUNDS = 15
SECONDS = 2.0  # approximate limit for all rounds of a kernel together
RANDOM = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def measure(pairs: Sequence[tuple[LaunchSource, Cubin]], device: str) -> list[float]:
    """Returns the seconds of each of `pairs`, the launch configurations of one kernel; infinite for one that
    cannot be launched."""
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("the stream is being recorded")
    place = torch.device(device)
    with torch.no_grad(), torch.cuda.device(place):
        tensors = {b: _tensor(b, place) for source, _ in pairs for b in _buffers(source)}
        flushed = torch.empty(
            max(2 * chip_of(device).l2_bytes, 64 << 20), dtype=torch.uint8, device=place
        )
        plans = [_plan(source, cubin, place) for source, cubin in pairs]
        arguments = [[tensors[b] for b in _buffers(source)] for source, _ in pairs]
        for number, plan in enumerate(plans):
            try:
                if plan is not None:
                    plan(*arguments[number])
            except (FrameloomError, RuntimeError):
                plans[number] = None
        times: list[list[float]] = [[] for _ in pairs]
        for round in range(ROUNDS):
            for plan, inputs, taken in zip(plans, arguments, times, strict=True):
                if plan is not None:
                    taken.append(_time_launch(plan, inputs, flushed))
            if (1 + round) * sum(t[-1] for t in times if t) > SECONDS:
                break
    return [statistics.median(taken) if taken else float("inf") for taken in times]


def _time_launch(plan: Any, inputs: Sequence[torch.Tensor], flushed: torch.Tensor) -> float:
    event: Any = torch.cuda.Event
    start, end = event(enable_timing=True), event(enable_timing=True)
    flushed.zero_()
    start.record()
    plan(*inputs)
    end.record()
    end.synchronize()
    return 1e-3 * float(start.elapsed_time(end))


def _plan(source: LaunchSource, cubin: Cubin, place: torch.device) -> Any:
    """Returns a plan of one launch, with all buffers as inputs; None if the device rejects it."""
    try:
        function = load(cubin, place.index)
    except (FrameloomError, RuntimeError):
        return None
    buffers = _buffers(source)
    specs = tuple(BufferSpec("input", b.shape, b.strides, _dtype(b), place) for b in buffers)
    launch = LaunchCall(function, tuple(range(len(specs))), source.grid, None, source.symbol)
    return _runtime.Plan(PlanSpec(len(specs), specs, (launch,), (), 0))


def _buffers(source: LaunchSource) -> tuple[Buffer, ...]:
    (entry,) = source.entries[:1]
    assert isinstance(entry, LaunchEntry), "lists are not timed"
    return entry.buffers


def _dtype(buffer: Buffer) -> torch.dtype:
    assert buffer.dtype is not None
    dtype: torch.dtype = buffer.dtype.to_torch()
    return dtype


def _tensor(buffer: Buffer, place: torch.device) -> torch.Tensor:
    """Returns a tensor for the buffer: random numbers around 0 if the dtype is floating point, else zeros."""
    room = 1 + sum((e - 1) * s for e, s in zip(buffer.shape, buffer.strides, strict=True))
    dtype = _dtype(buffer)
    memory = torch.zeros(max(0, room) * dtype.itemsize, dtype=torch.uint8, device=place).view(dtype)
    if dtype in RANDOM:
        # A separate generator, so that the program's random numbers do not change.
        memory.normal_(generator=torch.Generator(place).manual_seed(0))
    return memory.as_strided(buffer.shape, buffer.strides)
