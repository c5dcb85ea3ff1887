"""Triton sources of the kernels on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from frameloom.backend.autotune import tuned
from frameloom.codegen.schedule import horizontal
from frameloom.codegen.schedule.partition import partition
from frameloom.codegen.triton.chip import chip_of
from frameloom.codegen.triton.list_text import generate_lists
from frameloom.codegen.triton.module import generate, variants
from frameloom.ir.program import Program, is_cuda


def launches(program: Program) -> Program:
    """Splits kernels that one launch cannot compute, and joins kernels that one launch can compute
    together."""
    return horizontal.lists(partition(program, chip_of))


def sources_of(
    program: Program, device: str, tune: bool, begin: Callable[[Any], object] | None
) -> Sequence[Any]:
    """Returns the sources of all kernels of a device.  `begin` is called with each one as soon as it is
    written; with `tune`, several are timed first, and `begin` is not called."""
    assert is_cuda(device), f"no kernels are generated for {device}"
    chip = chip_of(device)
    kernels = [k for k in program.kernels if k.device == device]
    if tune:
        sources = tuned(variants(kernels, chip, program.checked), device)
    else:
        sources = generate(kernels, chip, program.checked, begin)
    lists = [s for s in program.kernel_lists if s.device == device]
    return [*sources, *generate_lists(lists, chip)]
