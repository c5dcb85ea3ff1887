"""Triton sources of the kernels on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from frameloom.backend.autotune import tuned
from frameloom.codegen.schedule.horizontal import lists
from frameloom.codegen.schedule.partition import partition
from frameloom.codegen.triton.chip import chip_of
from frameloom.codegen.triton.list_text import generate_lists
from frameloom.codegen.triton.module import generate, variants
from frameloom.ir.program import Buffer, Kernel, KernelList, Program, is_cuda


def launches(program: Program) -> Program:
    """Splits kernels that one launch cannot compute, and joins kernels that one launch can compute
    together."""
    return lists(partition(program, chip_of))


def sources_of(
    steps: Sequence[Kernel | KernelList],
    device: str,
    checks: frozenset[Buffer],
    tune: bool,
    begin: Callable[[Any], object] | None,
) -> Sequence[Any]:
    """Returns the sources of all kernels of a device.  `begin` is called with each one as soon as it is
    written; with `tune`, several are timed first, and `begin` is not called."""
    assert is_cuda(device), f"no kernels are generated for {device}"
    chip = chip_of(device)
    kernels = [s for s in steps if isinstance(s, Kernel)]
    kernel_lists = [s for s in steps if isinstance(s, KernelList)]
    if tune:
        sources = tuned(variants(kernels, chip, checks), device)
    else:
        sources = generate(kernels, chip, checks, begin)
    return [*sources, *generate_lists(kernel_lists, chip)]
