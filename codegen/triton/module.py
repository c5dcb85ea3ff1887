"""Turns kernels into Triton sources. The entry point of the GPU code generator.

program = partition(program, chip)      # every kernel one launch
sources = generate(kernels, chip)       # LaunchSource(text, symbol, signature, grid, ...)

`variants` returns the same before block sizes are chosen, with the alternatives for each kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from frameloom.codegen.schedule.cost import bytes_moved
from frameloom.codegen.schedule.tile_gpu import Launch, plan
from frameloom.codegen.schedule.tune import Tuning, apply, candidates
from frameloom.codegen.sizes import SIZE, fits_i32, named
from frameloom.codegen.structure import structure
from frameloom.codegen.triton.chip import Chip
from frameloom.codegen.triton.function import HEAD, Writer
from frameloom.codegen.triton.launch import LaunchEntry, LaunchSource
from frameloom.codegen.triton.ops import HELPERS, POINTERS
from frameloom.ir.node import Node
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, Kind
from frameloom.ir.substitute import topological
from frameloom.ir.symbolic.compare import divides
from frameloom.ir.symbolic.expr import Size

APART = "\n# ---\n"  # between bodies
ALIGNMENT = 16  # required of pointers; sizes that are multiples of it are marked


def generate(
    kernels: Sequence[Kernel],
    chip: Chip,
    checks: frozenset[Buffer] = frozenset(),
    begin: Callable[[LaunchSource], object] | None = None,
) -> list[LaunchSource]:
    """Returns a source for every different kernel; kernels that differ only in their buffers share one.

    `checks`: buffers whose elements must all be false. The kernel itself stops the program if one is true, as
    eager mode does on a GPU. `begin` is called with each source as soon as it is written.
    """
    sources = []
    for v in variants(kernels, chip, checks):
        sources.append(v.source())
        if begin is not None:
            begin(sources[-1])
    return sources


def variants(
    kernels: Sequence[Kernel], chip: Chip, checks: frozenset[Buffer] = frozenset()
) -> list[Variants]:
    """Returns one Variants for every source of `generate`, in its order."""
    isomorphic: dict[Hashable, list[tuple[Kernel, tuple[Buffer, ...]]]] = {}
    for kernel in kernels:
        key, buffers = structure(kernel)
        isomorphic.setdefault((key, tuple(b in checks for b in buffers)), []).append(
            (kernel, buffers)
        )
    return [Variants(tuple(group), chip, checks) for group in isomorphic.values()]


@dataclass(frozen=True, eq=False)
class Variants:
    """Kernels that share a source, each with its buffers, and the alternative sources for them."""

    group: tuple[tuple[Kernel, tuple[Buffer, ...]], ...]
    chip: Chip
    checks: frozenset[Buffer]

    @property
    def tunings(self) -> list[Tuning]:
        """Tunings to try besides the default. There are none if addresses depend on data, or if data can stop
        the program: such kernels cannot be timed on invented tensors."""
        kernel = self.group[0][0]
        if self._checked or any(s.scatter or _has_load(s.offset) for s in kernel.stores):
            return []
        values = topological([s.value for s in kernel.stores])
        if any(n.op is Op.LOAD and _has_load(n.srcs[0]) for n in values):
            return []
        launch = plan(kernel, self.chip)
        if any(
            isinstance(d.extent, Size) for d in (*launch.parallel, launch.inner) if d is not None
        ):
            return []
        return candidates(launch)

    @property
    def _checked(self) -> bool:
        return any(s.buffer in self.checks for s in self.group[0][0].stores)

    def source(self, tuning: Tuning | None = None) -> LaunchSource:
        """Returns the source with the default blocks, or with those of `tuning`."""
        first, first_buffers = self.group[0]
        launch = plan(first, self.chip)
        if tuning is not None:
            apply(launch, tuning)
        pointers = {b: f"p{i}" for i, b in enumerate(launch.buffers)}
        bodies = written(launch, pointers, self.checks)
        whole, sizes = named(APART.join("\n".join(b.lines) for b in bodies))
        types = tuple("i32" if fits_i32(n) else "i64" for n in sizes)
        symbol = "k_" + re.sub(r"\W", "_", first.name)
        notes = "".join(f"# {line}\n" for text in first.origin for line in text.splitlines())
        buffers = "".join(f"    # {name}: {b.name}\n" for b, name in pointers.items())
        parameters = [*pointers.values(), *(f"{SIZE}{k}" for k in range(len(sizes)))]
        head = f"@triton.jit\ndef {symbol}({', '.join(parameters)}):\n{buffers}"
        codes = [f"{notes}{head}{text}\n" for text in whole.split(APART)]
        helpers = ["".join(f"\n\n@triton.jit\n{HELPERS[h]}\n" for h in b.calls) for b in bodies]
        code, *_ = codes
        text, *general = (f"{HEAD}{h}\n\n{c}" for h, c in zip(helpers, codes, strict=True))
        moved = bytes_moved(first)
        entries = []
        for kernel, theirs in self.group:
            names = dict(zip(first_buffers, theirs, strict=True))
            order = tuple(names[b] for b in launch.buffers)
            entries.append(LaunchEntry(kernel.name, order, moved, code))
        return LaunchSource(
            text=text,
            symbol=symbol,
            signature=(
                *("i64" if b.kind is Kind.NUMBER else POINTERS[b.dtype] for b in launch.buffers),
                *(kind + _multiple(n) for n, kind in zip(sizes, types, strict=True)),
            ),
            sizes=tuple(zip(sizes, types, strict=True)),
            limit=bodies[0].limit,
            general="".join(general),
            grid=(launch.grid, 1, 1),
            warps=launch.warps,
            stages=launch.stages,
            debug=self._checked,
            entries=tuple(entries),
        )


@dataclass(frozen=True)
class Body:
    """The lines of a function, the helper functions that they call, and the greatest value of a size for
    which they are right."""

    lines: list[str]
    calls: list[str]
    limit: tuple[Size, int] | None = None


def written(launch: Launch, pointers: dict[Buffer, str], checks: frozenset[Buffer]) -> list[Body]:
    """Returns the body; if it has a limit, also a second one without a limit."""
    writer = Writer(launch, pointers, checks)
    lines = writer.body()
    longer = launch.longer
    if longer is None:
        return [Body(lines, list(writer.helpers))]
    assert launch.inner is not None
    other = Writer(longer, pointers, checks, writer.named)  # a name has one type, in both branches
    before = 0 if writer.aligned is None else writer.aligned.width - 1  # greatest shift of a row
    limit = (launch.inner.extent, launch.inner.block - before)
    both = [
        f"    if {limit[0]} <= {limit[1]}:", *indented(lines),
        "    else:", *indented(other.body()),
    ]  # fmt: skip
    general = Body(both, list(writer.helpers | other.helpers))
    return [Body(lines, list(writer.helpers), limit), general]


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _multiple(n: Size) -> str:
    """Returns the mark of a size in a signature."""
    return "!" if divides(ALIGNMENT, n) else "?" if n.hint % ALIGNMENT == 0 else ""


def _has_load(offset: Node) -> bool:
    return any(n.op is Op.LOAD for n in topological([offset]))
