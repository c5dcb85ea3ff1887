"""Turns kernels into C++ source files. The entry point of the CPU code generator.

files = generate(kernels)            # SourceFile(text, entries)
libraries = Builder().load(files)    # runtime/build/cpp_compiler.py; then look up each entry's symbol
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from frameloom.codegen.cpp.function import write
from frameloom.codegen.cpp.prelude import Prelude
from frameloom.codegen.cpp.scatter import schedule_scatter
from frameloom.codegen.cpp.vector import Isa, host_isa
from frameloom.codegen.schedule.cost import bytes_moved
from frameloom.codegen.schedule.nest import schedule
from frameloom.codegen.structure import structure
from frameloom.errors import BuildError
from frameloom.ir.program import Buffer, Kernel
from frameloom.ir.scatter import is_scatter
from frameloom.ir.symbolic.expr import Size

KERNELS_PER_FILE = 8  # a file costs as much compile time as three kernels


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """One kernel of a file. `symbol` is `int (void *const *buffers, const long *sizes)`; it returns 0, or
    another number if it cannot allocate memory. `buffers` are in the order of its first argument."""

    name: str
    symbol: str
    buffers: tuple[Buffer, ...]
    bytes_moved: int
    code: str  # the function's text; the file has the helpers that it uses
    sizes: tuple[Size, ...] = ()  # in the order of its second argument


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A C++ file; `flags` are those of the instruction set."""

    text: str
    entries: tuple[KernelEntry, ...]
    flags: tuple[str, ...]


def generate(kernels: Sequence[Kernel], isa: Isa | None = None, files: int = 2) -> list[SourceFile]:
    """Returns sources for `kernels`, at least `files` if there are enough kernels (files compile in
    parallel).

    Kernels that differ only in their buffers (the layers of a model) are one function with several entries.
    """
    isa = isa or host_isa()
    if isa is None:
        raise BuildError("this CPU has neither AVX2 nor NEON; run with FRAMELOOM_DISABLE=1")
    isomorphic: dict[Hashable, list[tuple[Kernel, tuple[Buffer, ...]]]] = {}
    for kernel in kernels:
        key, buffers = structure(kernel)
        isomorphic.setdefault(key, []).append((kernel, buffers))
    groups = list(isomorphic.values())
    count = max(min(files, -(-len(groups) // 2)), -(-len(groups) // KERNELS_PER_FILE))
    return [_file(groups[i::count], isa) for i in range(count)]


def _file(groups: Sequence[list[tuple[Kernel, tuple[Buffer, ...]]]], isa: Isa) -> SourceFile:
    prelude = Prelude(isa)
    parts = []
    entries = []
    taken: set[str] = set()
    for group in groups:
        first, first_buffers = group[0]
        symbol = _symbol(first.name, taken)
        tree = (schedule_scatter if is_scatter(first) else schedule)(first, isa)
        text, sizes = write(first, tree, symbol, prelude)
        parts.append(text)
        moved = bytes_moved(first)
        for kernel, buffers in group:
            theirs = dict(zip(first_buffers, buffers, strict=True))
            order = tuple(theirs[b] for b in tree.buffers)
            entries.append(KernelEntry(kernel.name, symbol, order, moved, text, sizes))
    text = prelude.text() + "\n" + "\n".join(parts)
    return SourceFile(text, tuple(entries), isa.flags)


def _symbol(name: str, taken: set[str]) -> str:
    # Without the kernel's number: the same code in another program must be the same text.
    stem = symbol = "k_" + re.sub(r"\W", "_", re.sub(r"_\d+$", "", name))
    n = 1
    while symbol in taken:
        n += 1
        symbol = f"{stem}_{n}"
    taken.add(symbol)
    return symbol
