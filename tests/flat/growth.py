"""How much a process grows over many calls: the system's count of resident memory, and exact counts of what is allocated."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


_mallinfo = ctypes.CDLL(None).mallinfo2
_mallinfo.restype = _Mallinfo


@dataclass(frozen=True)
class Held:
    # Bytes that the system has given, without what it shows of files: a forked process sees those where it first looks at them.
    resident: int
    blocks: int  # of Python's own allocator
    malloced: int  # bytes of the C library's

    def __sub__(self, other: Held) -> Held:
        return Held(
            self.resident - other.resident,
            self.blocks - other.blocks,
            self.malloced - other.malloced,
        )


def held() -> Held:
    for _ in range(2):
        gc.collect()
    found = _mallinfo()
    with open("/proc/self/status") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) << 10
    return Held(resident, sys.getallocatedblocks(), found.uordblks + found.hblkhd)


def growth(call: Callable[[int], Any], calls: int) -> Held:
    """By so many calls, behind a fifth as many."""
    first = max(calls // 5, 100)
    for k in range(first):
        call(k)
    before = held()
    for k in range(first, first + calls):
        call(k)
    return held() - before
