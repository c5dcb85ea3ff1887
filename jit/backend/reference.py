"""Runs a call of a plan a second time, in the reference interpreter of the loop IR.

The interpreter gets copies of the inputs, made before the plan writes to them; copies share memory where
inputs do.  It draws the same random numbers as the plan.  It runs the program as it was lowered, so the
comparison checks rewrites, fusion, schedules and generated code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from frameloom.capture.guards.thread_warnings import warnings_here
from frameloom.ir import interp
from frameloom.ir.interp import UNWRITTEN, Unwritten
from frameloom.ir.library import DRAW, OWN, overload
from frameloom.ir.passes.batch import expand
from frameloom.ir.program import Buffer, Extern, Kernel, Kind, Program, Step, is_cuda
from frameloom.ir.substitute import topological
from frameloom.ir.symbolic.expr import hint_product
from frameloom.ir.symbolic.static_steps import Unknown

Tensor = torch.Tensor
CPU = torch.device("cpu")
MOST_BYTES = 2 << 30  # of inputs
MOST_ELEMENTS = 1 << 26  # of all values, with intermediate ones, that a kernel computes
MOST_WORK = 1 << 29  # the same for all kernels together


class NotInterpreted(Exception):
    """The interpreter cannot run the call; the message says why."""


def why_not(program: Program) -> str | None:
    """Returns why the interpreter cannot run the program, or None if it can."""
    work = 0
    program = expand(program)
    for call in program.library_calls:
        if call.target not in OWN and not call.target.startswith("aten."):
            return f"{call.target} may do more than compute"
    for step in program.steps:
        for kernel in step.kernels:
            elements = _elements(kernel)
            work += elements
            if elements > MOST_ELEMENTS or work > MOST_WORK:
                return "too much to interpret"
    return None


def _elements(kernel: Kernel) -> int:
    roots = [n for s in kernel.stores for n in (s.offset, s.value)]
    return sum(hint_product(a.extent for a in n.free) for n in topological(roots))


class Call:
    """One call of a program: its inputs and the states of its random generators.  Made before the plan
    runs."""

    def __init__(self, program: Program, inputs: Sequence[Any]) -> None:
        self._program = program
        self._given = copies(inputs)
        self._writes = any(b.kind is Kind.INPUT for s in program.steps for b in s.writes)
        self._generators = _generators(program, inputs)
        self._random = [g.get_state() for g in self._generators]

    @property
    def rounds(self) -> bool:
        """Whether the program computes floats, which are rounded."""
        written = (b.dtype for s in self._program.steps for b in s.writes)
        return any(dtype is not None and dtype.is_float for dtype in written)

    def run(self, noise: Noise | None = None) -> tuple[Sequence[Any], Sequence[Any]]:
        """Returns the outputs, and the inputs after the call."""
        given = self._given
        if self._writes or noise is not None:
            given = copies(given, noise)
        now = [g.get_state() for g in self._generators]
        for generator, state in zip(self._generators, self._random, strict=True):
            generator.set_state(state)
        try:
            after, unwritten = (None, UNWRITTEN) if noise is None else (noise.after, noise.fill)
            outputs = interp.run(self._program, given, self._take(), after, unwritten, True)
        except (Unknown, NotImplementedError, torch.OutOfMemoryError) as error:
            raise NotInterpreted(str(error)) from error
        except RuntimeError as error:
            if "not implemented for" in str(error):
                raise NotInterpreted(str(error)) from error
            raise
        finally:
            for generator, state in zip(self._generators, now, strict=True):
                generator.set_state(state)
        return outputs, given

    def _take(self) -> Callable[[int], tuple[int, int]]:
        on_gpu = [g for g in self._generators if g.device.type == "cuda"]

        def take(increment: int) -> tuple[int, int]:
            if len(on_gpu) > 1:
                raise NotInterpreted("several GPUs draw")
            offset = on_gpu[0].get_offset()
            on_gpu[0].set_offset(offset + increment)
            return on_gpu[0].initial_seed(), offset

        return take


class Noise:
    """Models rounding: each computed value is off by some units in the last place, and unwritten memory has
    other contents."""

    def __init__(self, trial: int) -> None:
        self.fill = Unwritten(0.0, 0) if trial % 2 else UNWRITTEN
        self._sign = trial % 2 - 0.5  # the sign of NaNs
        self._random = torch.Generator().manual_seed(trial)

    def off(self, exact: Tensor) -> Tensor:
        if not exact.dtype.is_floating_point or exact.dtype.itemsize < 2:
            return exact
        units = torch.rand(exact.shape, generator=self._random, dtype=torch.float64) * 2 - 1
        if exact.dtype.itemsize > 2:  # sums and functions in these are not rounded to the nearest
            units *= 8
        eps = torch.finfo(exact.dtype).eps
        return (exact * (1 + units.to(exact.device) * eps)).to(exact.dtype)

    def after(self, step: Step, memory: dict[Buffer, Tensor]) -> None:
        for buffer in step.writes:
            if buffer not in memory:
                continue
            exact = memory[buffer]
            if buffer.kind is Kind.EXTERN:  # may be a constant, or share memory with an input
                empty = torch.empty_strided(
                    exact.shape, exact.stride(), dtype=exact.dtype, device=exact.device
                )
                memory[buffer] = empty.copy_(self._unwritten(step, exact))
            elif not any(s == 0 and n > 1 for n, s in zip(exact.shape, exact.stride())):  # noqa: B905
                exact.copy_(self._computed(exact))

    def _computed(self, exact: Tensor) -> Tensor:
        """Adds noise, and sets the sign of NaNs.  The sign of a computed NaN depends on the processor and on
        vectorization, and the program can see it in the bits."""
        noisy = self.off(exact)
        if not exact.dtype.is_floating_point or exact.dtype.itemsize < 2:
            return noisy
        return torch.where(exact.isnan(), exact.new_tensor(math.nan).copysign(self._sign), noisy)

    def _unwritten(self, step: Step, result: Tensor) -> Tensor:
        if isinstance(step, Extern) and step.target.startswith(("aten.empty", "aten.new_empty")):
            return self.fill.fill(torch.empty_like(result))
        return self._computed(result)


def copies(inputs: Sequence[Any], noise: Noise | None = None) -> list[Any]:
    """Copies the tensors; copies share memory where the tensors do."""
    memory: dict[tuple[Any, int], torch.UntypedStorage] = {}
    copied: list[Any] = []
    total = 0
    with torch._C.DisableTorchFunctionSubclass():
        for given in inputs:
            if not isinstance(given, Tensor):
                copied.append(given)
                continue
            if given.layout is not torch.strided or given.device.type not in ("cpu", "cuda"):
                raise NotInterpreted(f"an input is of {given.layout} on {given.device}")
            whole = given.untyped_storage()
            key = given.device, whole.data_ptr()
            own = memory.get(key)
            if own is None or not whole.nbytes():
                total += whole.nbytes()
                if total > MOST_BYTES:
                    raise NotInterpreted("inputs are too large")
                own = memory[key] = whole.clone()  # type: ignore[no-untyped-call]
                if noise is not None:
                    flat = torch.empty(0, dtype=given.dtype, device=given.device).set_(own)
                    flat.copy_(noise.off(flat))
            elif own.nbytes() != whole.nbytes():
                raise NotInterpreted("inputs share parts of memory")
            copy = torch.empty(0, dtype=given.dtype, device=given.device)
            copy.set_(own, given.storage_offset(), given.shape, given.stride())
            copy = copy.conj() if given.is_conj() else copy
            copied.append(torch._neg_view(copy) if given.is_neg() else copy)
    return copied


def _generators(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Returns the generators from which a call of the program draws."""
    generators: dict[int, Any] = {}
    for step in program.library_calls:
        own = [v for v in step.arguments if isinstance(v, torch.Generator)]
        if step.target == DRAW:
            own = [_default(step.args[0])]
        elif step.target.startswith("aten.") and draws(step):
            own += [_default(b.device) for b in step.buffers]
        generators |= {id(g): g for g in own}
    generators |= {id(g): g for g in inputs if isinstance(g, torch.Generator)}
    return list(generators.values())


def draws(step: Extern) -> bool:
    """Whether a library call draws random numbers."""
    return torch.Tag.nondeterministic_seeded in overload(step.target).tags


def _default(device: str) -> torch.Generator:
    if is_cuda(device):
        generator: torch.Generator = torch.cuda.default_generators[torch.device(device).index]
        return generator
    return torch.default_generator


@contextmanager
def plan_modes() -> Iterator[None]:
    """Sets the modes in which plans run.  Warnings are not repeated, and tensors of the comparison are on the
    device that is given, regardless of the default device that the program has set."""
    cpu = nullcontext() if torch.get_default_device() == CPU else CPU
    with torch.no_grad(), torch._C._DisableAutocast(), warnings_here("ignore"), cpu:
        yield
