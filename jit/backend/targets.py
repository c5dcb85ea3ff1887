"""Chooses the code generator and the compiler of a kernel by its device: C++ for the CPU, Triton for CUDA.

The writer of Triton kernels is imported when a program first has a kernel on a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from frameloom.backend.plan_objects import Built
from frameloom.capture.recording.captured_graph import CapturedGraph
from frameloom.codegen.cpp.module import generate
from frameloom.codegen.triton.chip import chip_of
from frameloom.errors import BuildError
from frameloom.ir.program import Program, is_cuda
from frameloom.runtime.build.cpp_compiler import load
from frameloom.runtime.build.triton_compiler import Building, first_time, prewarm
from frameloom.runtime.build.triton_compiler import build as build_triton

OPS_OF_A_KERNEL = 8  # a rough average


@dataclass(frozen=True, slots=True)
class Texts:
    """Generated sources: C++ files, and Triton sources by device."""

    files: Sequence[Any]
    launches: Sequence[tuple[str, Sequence[Any]]]
    begun: Mapping[str, Any] = field(default_factory=dict)  # by device: a Building

    def go_on(self) -> int:
        """Gives work to idle compiler processes; returns how many sources are not compiled yet."""
        return sum(building.go_on() for building in self.begun.values())

    def close(self) -> None:
        """Stops compiling the sources: they are not needed."""
        for building in self.begun.values():
            building.close()

    def entries(self) -> Iterator[Any]:
        """Yields an entry per kernel, with `name` and `code`."""
        for source in [*self.files, *(s for _, sources in self.launches for s in sources)]:
            yield from source.entries

    def readable(self) -> Iterator[tuple[str, str]]:
        """Yields file names and texts for dumps."""
        if self.files:
            yield "output_code.cpp", "\n\n".join(s.text for s in self.files)
        triton = [s for _, sources in self.launches for s in sources]
        for number, source in enumerate(triton):
            how = f"# grid {source.grid}, {source.warps} warps, {source.stages} stages\n"
            yield f"output_code_{number}.py", how + source.text


def announce(captured: CapturedGraph) -> None:
    """Starts more Triton processes if this graph is on a GPU and was never compiled before; they start while
    the earlier stages run."""
    expected = captured.n_ops // OPS_OF_A_KERNEL
    if expected < 2 or not any(
        isinstance(e, torch.Tensor) and e.is_cuda for e in captured.examples
    ):
        return

    def geometry(value: Any) -> Any:
        return value.shape if isinstance(value, torch.Tensor) else value

    nodes = captured.graph.nodes
    work = "\n".join(f"{n.target}{n.args}{geometry(n.meta.get('val'))}" for n in nodes)
    with contextlib.suppress(BuildError, OSError):  # the build reports these errors
        if first_time(work):
            prewarm(expected)


def launches(program: Program) -> Program:
    """Splits kernels on a GPU that one launch cannot compute, and joins kernels that one launch can compute
    together."""
    if not any(is_cuda(kernel.device) for kernel in program.kernels):
        return program
    split: Program = _for_gpus().launches(program)
    return split


def generate_all(
    program: Program,
    tune: bool = False,
    ahead: bool = False,
    between: Callable[..., object] | None = None,
) -> Texts:
    """Returns the sources of all kernels; with `tune`, the fastest of several for a GPU (autotune.py).
    `ahead`: each kernel for a GPU starts to compile as soon as its source is generated.  Otherwise `between`
    is called after each."""
    cpu = [k for k in program.kernels if k.device == "cpu"]
    begun: dict[str, Any] = {}
    texts = []
    try:
        for device in dict.fromkeys(s.device for s in program.launches if s.device != "cpu"):
            if ahead and not tune:
                begun[device] = Building(chip_of(device).arch)
            begin = begun[device].add if device in begun else between
            sources = _for_gpus().sources_of(program, device, tune, begin)
            texts.append((device, sources))
        return Texts(generate(cpu) if cpu else (), texts, begun)
    except BaseException:
        for building in begun.values():
            building.close()
        raise


def _for_gpus() -> ModuleType:
    """Returns the writer of Triton kernels.  Programs on the CPU do not wait for its import."""
    from frameloom.backend import gpu_sources  # takes 0.1 s

    return gpu_sources


def build_all(texts: Texts) -> Built:
    """Compiles the sources, or takes the results from the cache."""
    libraries: Sequence[Any] = ()
    cubins = []
    if texts.files:
        libraries = list(zip(texts.files, load(texts.files), strict=True))
    for device, sources in texts.launches:
        if (building := texts.begun.get(device)) is not None:
            device_cubins = building.result(sources)
        else:
            device_cubins = build_triton(sources, chip_of(device).arch)
        cubins += [(s, cubin, device) for s, cubin in zip(sources, device_cubins, strict=True)]
    return Built(libraries, cubins)
