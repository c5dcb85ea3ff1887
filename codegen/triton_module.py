"""Kernels -> Triton sources.  The front of the GPU code generator.

program = partition(program, chip)      # every kernel one launch
sources = generate(kernels, chip)       # LaunchSource(text, symbol, signature, grid, ...)
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

from frameloom.codegen.chip import Chip
from frameloom.codegen.cost import bytes_moved
from frameloom.codegen.cpp_module import structure
from frameloom.codegen.grid import plan
from frameloom.codegen.launch import LaunchEntry, LaunchSource
from frameloom.codegen.triton_ops import HELPERS, POINTERS
from frameloom.codegen.triton_text import Writer
from frameloom.ir.program import Buffer, Kernel

HEAD = """import triton
import triton.language as tl
from triton.language.extra import libdevice
"""


def generate(
    kernels: Sequence[Kernel], chip: Chip, checks: frozenset[Buffer] = frozenset()
) -> list[LaunchSource]:
    """A source for every different kernel; kernels that differ only in their buffers share one.

    `checks`: buffers of which every element has to be false; the kernel itself stops the program if one is not, as
    eager does on a GPU.
    """
    alike: dict[Hashable, list[tuple[Kernel, tuple[Buffer, ...]]]] = {}
    for kernel in kernels:
        key, buffers = structure(kernel)
        alike.setdefault((key, tuple(b in checks for b in buffers)), []).append((kernel, buffers))
    return [_source(group, chip, checks) for group in alike.values()]


def _source(
    group: Sequence[tuple[Kernel, tuple[Buffer, ...]]], chip: Chip, checks: frozenset[Buffer]
) -> LaunchSource:
    first, first_buffers = group[0]
    launch = plan(first, chip)
    pointers = {b: f"p{i}" for i, b in enumerate(launch.buffers)}
    writer = Writer(launch, pointers, checks)
    body = writer.body()
    symbol = "k_" + re.sub(r"\W", "_", first.name)
    notes = "".join(f"# {line}\n" for text in first.origin for line in text.splitlines())
    buffers = "".join(f"    # {name}: {b.name}\n" for b, name in pointers.items())
    head = f"@triton.jit\ndef {symbol}({', '.join(pointers.values())}):\n{buffers}"
    code = notes + head + "\n".join(body) + "\n"
    helpers = "".join(f"\n\n@triton.jit\n{HELPERS[h]}\n" for h in writer.helpers)
    moved = bytes_moved(first)
    entries = []
    for kernel, theirs in group:
        names = dict(zip(first_buffers, theirs, strict=True))
        order = tuple(names[b] for b in launch.buffers)
        entries.append(LaunchEntry(kernel.name, order, moved, code))
    return LaunchSource(
        text=f"{HEAD}{helpers}\n\n{code}",
        symbol=symbol,
        signature=tuple(POINTERS[b.dtype] for b in launch.buffers),
        grid=(launch.grid, 1, 1),
        warps=launch.warps,
        stages=launch.stages,
        debug=any(s.buffer in checks for s in first.stores),
        entries=tuple(entries),
    )
