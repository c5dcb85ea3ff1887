"""Kernels -> Triton sources.  The front of the GPU code generator.

program = partition(program, chip)      # every kernel one launch
sources = generate(kernels, chip)       # LaunchSource(text, symbol, signature, grid, ...)

`variants` gives the same before the blocks are chosen: what else a kernel could be launched with.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from frameloom.codegen.chip import Chip
from frameloom.codegen.cost import bytes_moved
from frameloom.codegen.cpp_module import structure
from frameloom.codegen.grid import plan
from frameloom.codegen.launch import LaunchEntry, LaunchSource
from frameloom.codegen.triton_ops import HELPERS, POINTERS
from frameloom.codegen.triton_text import HEAD, Writer
from frameloom.codegen.tuning import Tuning, apply, candidates
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, Kind
from frameloom.ir.substitute import topological


def generate(
    kernels: Sequence[Kernel], chip: Chip, checks: frozenset[Buffer] = frozenset()
) -> list[LaunchSource]:
    """A source for every different kernel; kernels that differ only in their buffers share one.

    `checks`: buffers of which every element has to be false; the kernel itself stops the program if one is not, as
    eager does on a GPU.
    """
    return [v.source() for v in variants(kernels, chip, checks)]


def variants(
    kernels: Sequence[Kernel], chip: Chip, checks: frozenset[Buffer] = frozenset()
) -> list[Variants]:
    """One for every source of `generate`, in its order."""
    alike: dict[Hashable, list[tuple[Kernel, tuple[Buffer, ...]]]] = {}
    for kernel in kernels:
        key, buffers = structure(kernel)
        alike.setdefault((key, tuple(b in checks for b in buffers)), []).append((kernel, buffers))
    return [Variants(tuple(group), chip, checks) for group in alike.values()]


@dataclass(frozen=True, eq=False)
class Variants:
    """Kernels that share a source, each with its buffers, and the sources that could be theirs."""

    group: tuple[tuple[Kernel, tuple[Buffer, ...]], ...]
    chip: Chip
    checks: frozenset[Buffer]

    @property
    def tunings(self) -> list[Tuning]:
        """What is worth trying beside the default.  Nothing where addresses depend on data, or data can stop the
        program: that cannot be tried on made up tensors."""
        kernel = self.group[0][0]
        if self._checked or any(s.scatter or _has_load(s.offset) for s in kernel.stores):
            return []
        values = topological([s.value for s in kernel.stores])
        if any(n.op is Op.LOAD and _has_load(n.srcs[0]) for n in values):
            return []
        return candidates(plan(kernel, self.chip))

    @property
    def _checked(self) -> bool:
        return any(s.buffer in self.checks for s in self.group[0][0].stores)

    def source(self, tuning: Tuning | None = None) -> LaunchSource:
        """With the default's blocks, or those of `tuning`."""
        first, first_buffers = self.group[0]
        launch = plan(first, self.chip)
        if tuning is not None:
            apply(launch, tuning)
        pointers = {b: f"p{i}" for i, b in enumerate(launch.buffers)}
        writer = Writer(launch, pointers, self.checks)
        body = writer.body()
        symbol = "k_" + re.sub(r"\W", "_", first.name)
        notes = "".join(f"# {line}\n" for text in first.origin for line in text.splitlines())
        buffers = "".join(f"    # {name}: {b.name}\n" for b, name in pointers.items())
        head = f"@triton.jit\ndef {symbol}({', '.join(pointers.values())}):\n{buffers}"
        code = notes + head + "\n".join(body) + "\n"
        helpers = "".join(f"\n\n@triton.jit\n{HELPERS[h]}\n" for h in writer.helpers)
        moved = bytes_moved(first)
        entries = []
        for kernel, theirs in self.group:
            names = dict(zip(first_buffers, theirs, strict=True))
            order = tuple(names[b] for b in launch.buffers)
            entries.append(LaunchEntry(kernel.name, order, moved, code))
        return LaunchSource(
            text=f"{HEAD}{helpers}\n\n{code}",
            symbol=symbol,
            signature=tuple(
                "i64" if b.kind is Kind.NUMBER else POINTERS[b.dtype] for b in launch.buffers
            ),
            grid=(launch.grid, 1, 1),
            warps=launch.warps,
            stages=launch.stages,
            debug=self._checked,
            entries=tuple(entries),
        )


def _has_load(offset: Node) -> bool:
    return any(n.op is Op.LOAD for n in topological([offset]))
