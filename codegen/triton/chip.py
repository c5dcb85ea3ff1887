"""What the Triton writer knows about a GPU: numbers, read once per device.

`chip_of("cuda:1")` asks PyTorch. Without a GPU it returns H200, so that kernels can be generated anywhere.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Chip:
    """`arch`: 10 * major + minor of the compute capability; `bandwidth`: bytes per second that a copy
    reaches."""

    name: str
    arch: int
    multiprocessors: int
    l2_bytes: int
    registers_per_sm: int = 65536
    shared_per_sm: int = 228 << 10
    bandwidth: float = 2e12


H200 = Chip(
    name="NVIDIA H200",
    arch=90,
    multiprocessors=132,
    l2_bytes=50 << 20,
    registers_per_sm=65536,
    shared_per_sm=228 << 10,
    bandwidth=4.26e12,
)
COPY_SHARE = 0.88  # of the nominal bandwidth: what a copy of large arrays reaches


@functools.cache
def chip_of(device: str = "cuda") -> Chip:
    """Returns the numbers of a CUDA device of this process; those of an H200 if there is none."""
    import torch

    if not torch.cuda.is_available():
        return H200
    p: Any = torch.cuda.get_device_properties(torch.device(device))
    return Chip(
        name=p.name,
        arch=10 * p.major + p.minor,
        multiprocessors=p.multi_processor_count,
        l2_bytes=p.L2_cache_size,
        registers_per_sm=getattr(p, "regs_per_multiprocessor", H200.registers_per_sm),
        shared_per_sm=getattr(p, "shared_memory_per_multiprocessor", H200.shared_per_sm),
        bandwidth=_bandwidth(p),
    )


def _bandwidth(properties: Any) -> float:
    # memory_clock_rate is in kHz, with two transfers per clock; memory_bus_width is in bits.
    clock = getattr(properties, "memory_clock_rate", 0)
    width = getattr(properties, "memory_bus_width", 0)
    return COPY_SHARE * 2e3 * clock * width / 8 if clock and width else Chip.bandwidth
