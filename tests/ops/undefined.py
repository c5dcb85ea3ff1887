"""What eager leaves undefined: elements that hold whatever the memory held before.

A call is run with two different bytes in all memory that is allocated afresh (by the C library: glibc can be told so).  Where the results
differ, nothing can be compared.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tests.ops.compare import Run, picture_of, tensors_of

M_PERTURB = -6  # of <malloc.h>
TUNABLES = "GLIBC_TUNABLES"
BYTES = (0x00, 0x7F)  # zeros; numbers of about 3.4e38 in float32


def undefined_leaves(call: Callable[..., Any], fresh: Callable[[], Any]) -> list[Any] | None:
    """Of each leaf of [arguments, result] which elements are undefined, as a tensor of bools; None if no element is."""
    leaves = []
    for byte in BYTES:
        with fresh_memory_holds(byte):
            run = Run(call, fresh())
        if run.error is not None:
            return None
        leaves.append(tensors_of(picture_of(run).leaves))
    if len(leaves[0]) != len(leaves[1]):
        return None
    found = [_differing(a, b) for a, b in zip(*leaves, strict=True)]
    return found if any(bool(f.any()) for f in found) else None


@contextmanager
def fresh_memory_holds(byte: int) -> Iterator[None]:
    perturb = getattr(ctypes.CDLL(None), "mallopt", lambda option, value: 0)
    perturb(
        M_PERTURB, byte ^ 0xFF
    )  # it fills what is freed with the complement of what is allocated
    try:
        yield
    finally:
        perturb(M_PERTURB, 0)


def without_thread_caches() -> None:
    """Starts this process anew, once: what glibc keeps for each thread it gives out again as it was left, not filled."""
    if TUNABLES not in os.environ:
        os.environ[TUNABLES] = "glibc.malloc.tcache_count=0"
        os.execv(sys.executable, sys.orig_argv)


def _differing(a: Any, b: Any) -> torch.Tensor:
    a, b = (
        torch.as_tensor(a).resolve_conj().resolve_neg(),
        torch.as_tensor(b).resolve_conj().resolve_neg(),
    )
    if a.shape != b.shape or a.dtype != b.dtype or a.layout is not torch.strided:
        return torch.zeros(a.shape, dtype=torch.bool)
    size = a.element_size()
    bits = [t.contiguous().view(-1).view(torch.uint8).view(-1, size) for t in (a, b)]
    return (bits[0] != bits[1]).any(1).view(a.shape)
