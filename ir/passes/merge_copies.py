"""Joins small copies of inputs on a GPU that run over the same loops into one kernel.

Weights in the layouts that library calls need then take one launch instead of many.

Such a kernel reads only data that exists before the call and does not change, so it may run as early as the
first copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from frameloom.ir.passes.memory import size_in_bytes
from frameloom.ir.program import Buffer, Kernel, Kind, Program, Step, is_cuda
from frameloom.ir.symbolic.expr import hint_of

MAX_COPIES = 8  # copies in one kernel
MAX_COPY_BYTES = 4 << 20  # bytes of one copy: a larger copy takes longer than its launch


def merge_copies(program: Program) -> Program:
    """Returns `program` with fewer kernels that prepare inputs."""
    changed = {b for step in program.steps for b in step.changes}
    steps: list[Step] = []
    # Loops, device -> the kernel that takes more copies, and its place.
    open_kernels: dict[Any, tuple[Kernel, int]] = {}
    for step in program.steps:
        if isinstance(step, Kernel) and _prepares(step, changed):
            key = (step.device, step.stores[0].axes, step.stores[0].buffer.dtype)
            if key in open_kernels:
                first, at = open_kernels.pop(key)
                origin = tuple(dict.fromkeys((*first.origin, *step.origin)))
                first = replace(first, stores=(*first.stores, *step.stores), origin=origin)
                steps[at] = first
                if len(first.stores) < MAX_COPIES:
                    open_kernels[key] = first, at
                continue
            open_kernels[key] = step, len(steps)
        steps.append(step)
    return program if len(steps) == len(program.steps) else replace(program, steps=tuple(steps))


def _prepares(kernel: Kernel, changed: set[Buffer]) -> bool:
    if len(kernel.stores) != 1 or not is_cuda(kernel.device):
        return False
    (store,) = kernel.stores
    if store.buffer.kind is not Kind.TEMP or hint_of(size_in_bytes(store.buffer)) > MAX_COPY_BYTES:
        return False
    given = (Kind.INPUT, Kind.CONSTANT)
    return all(b.kind in given and b not in changed for b in kernel.reads)
