"""Vector instruction sets: a table of what the C++ writer needs to know about each.

The vectors of a loop have as many lanes as fit into one register with the widest element type of the loop
(`Isa.lanes`). So a value of any narrower type is a part of a register and no value takes two. The set is
chosen from the machine on first use; tests ask for a narrower one by name.
"""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Isa:
    """One instruction set. Generated code tests the compiler's macros (__AVX512F__, ...) for single
    instructions."""

    name: str
    bytes: int  # of a vector register
    flags: tuple[str, ...]  # for the compiler

    def lanes(self, element_bytes: int) -> int:
        return self.bytes // element_bytes


AVX512 = Isa(
    "avx512", 64, ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx2", "-mfma", "-mf16c",
                   "-mprefer-vector-width=512"),
)  # fmt: skip
AVX2 = Isa("avx2", 32, ("-mavx2", "-mfma", "-mf16c"))
NEON = Isa("neon", 16, ())
ISAS = {isa.name: isa for isa in (AVX512, AVX2, NEON)}

_AVX512_FLAGS = {"avx512f", "avx512dq", "avx512bw", "avx512vl"}


@functools.cache
def host_isa() -> Isa | None:
    """Returns the widest set of this machine, or None if only scalar code would run (then library calls are
    better).

    ATEN_CPU_CAPABILITY (avx2, default) selects a narrower one, as it does for PyTorch's own kernels.
    """
    machine = platform.machine()
    if machine in ("aarch64", "arm64"):
        return NEON
    if machine not in ("x86_64", "AMD64"):
        return None
    flags, most = _cpu_flags(), os.environ.get("ATEN_CPU_CAPABILITY")
    if most == "default":
        return None
    if flags >= _AVX512_FLAGS and most != "avx2":
        return AVX512
    return AVX2 if {"avx2", "fma", "f16c"} <= flags else None


def _cpu_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo") as info:
            for line in info:
                if line.startswith("flags"):
                    return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    # No such file (macOS, Windows): ask PyTorch.
    capability = torch.backends.cpu.get_cpu_capability()
    if capability == "AVX512":
        return {"avx2", "fma", "f16c"} | _AVX512_FLAGS
    return {"avx2", "fma", "f16c"} if capability == "AVX2" else set()
