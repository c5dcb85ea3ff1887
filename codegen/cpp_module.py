"""Kernels -> C++ source files.  The front of the CPU code generator.

files = generate(kernels)            # SourceFile(text, entries)
paths = Builder().build(files)       # runtime/build.py; then load and look up each entry's symbol
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from frameloom.codegen.cost import bytes_moved
from frameloom.codegen.cpp import write
from frameloom.codegen.prelude import Prelude
from frameloom.codegen.schedule import schedule
from frameloom.codegen.vector import Isa, host_isa
from frameloom.errors import BuildError
from frameloom.ir.program import Buffer, Kernel

KERNELS_PER_FILE = 8  # a file costs as much compile time as three kernels


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """`symbol` is `void (void *const *buffers, const long *sizes)`; `buffers` in the order of its first argument."""

    name: str
    symbol: str
    buffers: tuple[Buffer, ...]
    bytes_moved: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A C++ file; `flags` are the instruction set's."""

    text: str
    entries: tuple[KernelEntry, ...]
    flags: tuple[str, ...]


def generate(kernels: Sequence[Kernel], isa: Isa | None = None, files: int = 2) -> list[SourceFile]:
    """Sources for `kernels`, in order; `files` at least if there are enough kernels (they compile in parallel)."""
    isa = isa or host_isa()
    if isa is None:
        raise BuildError("this CPU has neither AVX2 nor NEON; run with FRAMELOOM_DISABLE=1")
    count = max(min(files, -(-len(kernels) // 2)), -(-len(kernels) // KERNELS_PER_FILE))
    groups = [kernels[i::count] for i in range(count)] if kernels else []
    result = []
    for group in groups:
        result.append(_file(group, isa))
    return result


def _file(kernels: Sequence[Kernel], isa: Isa) -> SourceFile:
    prelude = Prelude(isa)
    parts = []
    entries = []
    taken: set[str] = set()
    for kernel in kernels:
        symbol = _symbol(kernel.name, taken)
        tree = schedule(kernel, isa)
        parts.append(write(kernel, tree, symbol, prelude))
        entries.append(KernelEntry(kernel.name, symbol, tree.buffers, bytes_moved(kernel)))
    text = prelude.text() + "\n" + "\n".join(parts)
    return SourceFile(text, tuple(entries), isa.flags)


def _symbol(name: str, taken: set[str]) -> str:
    stem = symbol = "k_" + re.sub(r"\W", "_", name)
    n = 1
    while symbol in taken:
        n += 1
        symbol = f"{stem}_{n}"
    taken.add(symbol)
    return symbol
