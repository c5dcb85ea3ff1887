"""What the Triton writer knows about a GPU: numbers, read once per device.

`chip_of("cuda:1")` asks PyTorch. Without a GPU it returns H200, so that kernels can be generated anywhere.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Chip:
    """`arch`: 10 * major + minor of the compute capability."""

    name: str
    arch: int
    multiprocessors: int
    l2_bytes: int


H200 = Chip(name="NVIDIA H200", arch=90, multiprocessors=132, l2_bytes=50 << 20)


@functools.cache
def chip_of(device: str = "cuda") -> Chip:
    """Returns the numbers of a CUDA device of this process; those of an H200 if there is none."""
    if not torch.cuda.is_available():
        return H200
    p: Any = torch.cuda.get_device_properties(torch.device(device))
    return Chip(p.name, 10 * p.major + p.minor, p.multi_processor_count, p.L2_cache_size)
