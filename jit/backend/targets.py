"""Chooses the code generator and the compiler of a kernel by its device: C++ for the CPU, Triton for CUDA.

The modules for Triton are imported when a program first has a kernel on a GPU, and the C++ generator when one
first has a kernel on the CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from frameloom.backend.plan_objects import Built
from frameloom.capture.recording.captured_graph import CapturedGraph
from frameloom.errors import BuildError
from frameloom.ir.program import Buffer, Check, Kernel, KernelList, Program, is_cuda

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
    from frameloom.runtime.build.triton_compiler import first_time, prewarm

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
    if not any(isinstance(s, Kernel) and is_cuda(s.device) for s in program.steps):
        return program
    from frameloom.codegen.schedule.horizontal import lists
    from frameloom.codegen.schedule.partition import partition
    from frameloom.codegen.triton.chip import chip_of

    return lists(partition(program, chip_of))


def generate_all(
    program: Program,
    tune: bool = False,
    ahead: bool = False,
    between: Callable[..., object] | None = None,
) -> Texts:
    """Returns the sources of all kernels; with `tune`, the fastest of several for a GPU (autotune.py).
    `ahead`: each kernel for a GPU starts to compile as soon as its source is generated.  Otherwise `between`
    is called after each."""
    by_device: dict[str, list[Kernel | KernelList]] = {}
    for step in program.steps:
        if isinstance(step, Kernel | KernelList):
            by_device.setdefault(step.device, []).append(step)
    checks = frozenset(s.buffer for s in program.steps if isinstance(s, Check))
    cpu = [k for k in by_device.pop("cpu", []) if isinstance(k, Kernel)]
    begun: dict[str, Any] = {}
    texts = []
    try:
        for device, steps in by_device.items():
            if ahead and not tune:
                begun[device] = _building(device)
            begin = begun[device].add if device in begun else between
            texts.append((device, _triton(steps, device, checks, tune, begin)))
        return Texts(_cpp(cpu) if cpu else (), texts, begun)
    except BaseException:
        for building in begun.values():
            building.close()
        raise


def _building(device: str) -> Any:
    from frameloom.codegen.triton.chip import chip_of
    from frameloom.runtime.build.triton_compiler import Building

    return Building(chip_of(device).arch)


def _cpp(kernels: Sequence[Kernel]) -> Sequence[Any]:
    from frameloom.codegen.cpp.module import generate

    return generate(kernels)


def _triton(
    steps: Sequence[Kernel | KernelList],
    device: str,
    checks: frozenset[Buffer],
    tune: bool,
    begin: Callable[[Any], object] | None,
) -> Sequence[Any]:
    from frameloom.codegen.triton.chip import chip_of
    from frameloom.codegen.triton.module import generate

    assert is_cuda(device), f"no kernels are generated for {device}"
    chip = chip_of(device)
    kernels = [s for s in steps if isinstance(s, Kernel)]
    if tune:
        sources = _tuned(kernels, chip, device, checks)
    else:
        sources = generate(kernels, chip, checks, begin)
    return [*sources, *_lists(steps, chip)]


def _tuned(
    kernels: Sequence[Kernel], chip: Any, device: str, checks: frozenset[Buffer]
) -> Sequence[Any]:
    from frameloom.backend.autotune import tuned
    from frameloom.codegen.triton.module import variants

    return tuned(variants(kernels, chip, checks), device)


def _lists(steps: Sequence[Kernel | KernelList], chip: Any) -> Sequence[Any]:
    kernel_lists = [s for s in steps if isinstance(s, KernelList)]
    if not kernel_lists:
        return ()
    from frameloom.codegen.triton.list_text import generate_lists

    return generate_lists(kernel_lists, chip)


def build_all(texts: Texts) -> Built:
    """Compiles the sources, or takes the results from the cache."""
    libraries: Sequence[Any] = ()
    cubins = []
    if texts.files:
        from frameloom.runtime.build.cpp_compiler import load

        libraries = list(zip(texts.files, load(texts.files), strict=True))
    for device, sources in texts.launches:
        from frameloom.codegen.triton.chip import chip_of
        from frameloom.runtime.build.triton_compiler import build as build_triton

        if (building := texts.begun.get(device)) is not None:
            device_cubins = building.result(sources)
        else:
            device_cubins = build_triton(sources, chip_of(device).arch)
        cubins += [(s, cubin, device) for s, cubin in zip(sources, device_cubins, strict=True)]
    return Built(libraries, cubins)
