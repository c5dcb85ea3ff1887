"""Plans that interpreters run, in place of kernels from a compiler: none is waited for.

That of the loop IR takes what a CPU gets.  With `triton`, programs are lowered and scheduled as for a GPU, and their Triton texts interpreted.
Programs that compute with numbers or decide sizes by data keep their native plans, and so do those that draw, unless it is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch

import frameloom
from frameloom import pipeline
from frameloom.autograd.result_views import as_created, counting, recounted
from frameloom.backend import reference
from frameloom.backend.targets import Texts, generate_all
from frameloom.capture import _capture
from frameloom.capture.recording.captured_graph import CapturedGraph
from frameloom.capture.tensors.schema import may_raise
from frameloom.ir import interp
from frameloom.ir.library import LAZY, OWN
from frameloom.ir.lower.layout.onednn import OneDnn
from frameloom.ir.passes.batch import expand
from frameloom.ir.program import Buffer, Kind, Program, View
from frameloom.ir.symbolic.expr import Symbol, hint_of
from frameloom.ir.symbolic.static_steps import KnownSizes, Unknown
from frameloom.runtime.fallback import strided_view

_assembled = pipeline._assembled


_draws_too = False


@contextlib.contextmanager
def interpreted(draws: bool = False, triton: bool = False, texts: bool = False) -> Iterator[None]:
    """Within, programs are compiled for an interpreter where it can run them.  `draws`: those that draw, too; native plans know better
    how their calls start anew.  `triton`: for that of Triton, as on a GPU.  `texts`: kernels are written, too, though nobody compiles them."""
    stages = list(pipeline.PROGRAM_STAGES)
    if triton:
        name, lower, file = stages[0]
        stages[0] = (name, partial(_lowered_for_a_gpu, lower), file)
    with (
        mock.patch(f"{__name__}._draws_too", draws),
        mock.patch.object(pipeline, "PROGRAM_STAGES", tuple(stages)),
        mock.patch.object(pipeline, "generate_all", _written if texts else _texts),
        mock.patch.object(pipeline, "_assembled", _interpreter),
    ):
        yield


def within(way: str) -> contextlib.AbstractContextManager[None]:
    """`way`: as the command line calls it ("loops", "triton"); "": compiled."""
    return interpreted(triton=way == "triton") if way else contextlib.nullcontext()


def _lowered_for_a_gpu(lower: Any, captured: CapturedGraph) -> Program:
    from tests.codegen.interpreted_gpu import relocated

    if any(map(may_raise, captured.graph.nodes)):  # on a GPU that is an assertion
        return lower(captured)
    with mock.patch.object(pipeline, "onednn", OneDnn):
        program: Program = lower(relocated(captured))
    return program if _is_for_a_gpu(program) and _can_run(program) else lower(captured)


def _is_for_a_gpu(program: Program) -> bool:
    return any(s.device != "cpu" for s in program.launches)


def _texts(program: Program, *args: Any) -> Texts:
    if not _can_run(program):
        return generate_all(program, *args)
    return generate_all(program) if _is_for_a_gpu(program) else Texts((), ())


def _written(program: Program, *args: Any) -> Texts:
    return generate_all(program) if _can_run(program) else generate_all(program, *args)


def _interpreter(captured: CapturedGraph, options: Any, trail: Any, written: Any, *args: Any) -> Any:  # fmt: skip
    program = written.programs[-1]
    if not _can_run(program):
        return _assembled(captured, options, trail, written, *args)
    with trail.stage("plan"):
        sources = [s for _, some in written.texts.launches for s in some]
        plan = _Plan(program, captured, sources)
        plan = recounted(plan, captured.written, captured.recorded_views)
        plan = as_created(plan, captured.creation)
    report = pipeline.GraphReport(
        pipeline.without_examples(captured), lowered=written.programs[0], fused=program
    )
    return plan, report


class _Plan:
    """What a native plan does, by an interpreter."""

    def __init__(self, program: Program, captured: CapturedGraph, sources: Sequence[Any]) -> None:
        self.program = program
        self.restarts = captured.restarts
        self.repeated = captured.repeated
        self.bases = _bases(program.outputs, program.inputs, captured.repeated, captured.views)
        self.recorded_views = captured.recorded_views
        run: Any = lambda *inputs: interp.run(program, inputs)
        if sources:
            from tests.codegen.interpreted_gpu import InterpretedPlan

            run = InterpretedPlan(captured, program, None, sources, room=0)
        self.run = counting(run, captured.versions, captured.recorded_views)

    @frameloom.disable
    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        generator = torch.get_rng_state() if _draws_too else None
        with reference.plan_modes():
            given = [t.detach() if isinstance(t, torch.Tensor) else t for t in inputs]
            try:
                made = self.run(*given)
            except Exception as error:  # behind nothing that is written
                if not self.restarts:
                    raise
                if generator is not None:
                    torch.set_rng_state(generator)
                raise _capture.RunPlainly(error) from None
        given = dict(zip(self.program.inputs, inputs, strict=True))
        found: list[Any] = []
        bases: dict[Buffer, Any] = {}
        for k, (o, m) in enumerate(zip(self.program.outputs, made, strict=True)):
            if isinstance(o, View) and k in self.repeated:
                found.append(found[self.repeated[k]])
                continue
            with torch.set_grad_enabled(k in self.recorded_views and torch.is_grad_enabled()):
                if not isinstance(o, View) or o.buffer not in self.bases:
                    found.append(_output(o, m, given))
                    continue
                number = self.bases[o.buffer]
                if o.buffer not in bases:
                    bases[o.buffer] = _all_of(m) if number is None else _output(o, made[number], {})
                base = bases[o.buffer]
                found.append(base if k == number else _output(o, m, {o.buffer: base}))
        return tuple(found)


def _bases(
    outputs: Sequence[Any], inputs: Sequence[Buffer], repeated: Any, views: Any
) -> dict[Buffer, int | None]:
    """The memory of results that are views of one tensor: which of them that is, or None where nobody sees it."""
    sharing: dict[Buffer, list[int]] = {}
    for k, o in enumerate(outputs):
        if isinstance(o, View) and k not in repeated and o.buffer not in inputs:
            sharing.setdefault(o.buffer, []).append(k)
    return {
        buffer: _base_among([k for k in some if k not in views and not outputs[k].bits], outputs)
        for buffer, some in sharing.items()
        if len(some) > 1 or some[0] in views
    }


def _base_among(seen: Sequence[int], outputs: Sequence[Any]) -> int | None:
    alone = seen[0] if len(seen) == 1 else None
    return next((k for k in seen if _is_whole(outputs[k])), alone)


def _is_whole(o: View) -> bool:
    shape, strides = o.buffer.shape, o.buffer.strides
    return (o.shape, o.strides, o.offset, o.torch_dtype, o.bits) == (shape, strides, 0, None, ())


def _all_of(made: torch.Tensor) -> torch.Tensor:
    return made.data.new_empty(0).set_(made.untyped_storage())  # type: ignore[call-overload]


def _output(output: Any, made: Any, given: dict[Buffer, Any]) -> Any:
    """As plans give it: one object per output, not written to yet."""
    if isinstance(output, int):
        return list(given.values())[output]
    if not isinstance(output, View):
        return made
    base = given.get(output.buffer)
    for bit in output.bits:  # which is undone here, and done again to the view
        made = LAZY[bit](made)
    if base is None:
        made = made.data
    else:
        first = base.storage_offset() * base.element_size() // made.element_size()
        at = made.storage_offset() - first
        made = strided_view(base, at, made.shape, made.stride(), made.dtype)
    for bit in output.bits:
        made = LAZY[bit](made)
    return made


def _can_run(program: Program) -> bool:
    """Where what is drawn, computed of numbers or decided by data has a call start anew, only the native plan knows how."""
    if program.numbers or any(b.kind is Kind.NUMBER for b in program.inputs):
        return False
    calls = program.library_calls
    if any(s.target in OWN or s.defines for s in calls) or reference.why_not(program) is not None:
        return False
    if not _tell_the_sizes(program):
        return False
    return _draws_too or not any(map(reference.draws, calls))


class _Told(KnownSizes):
    """What the inputs tell of sizes, or steps of their results."""

    def _symbol(self, symbol: Symbol) -> int:
        return symbol.hint if symbol.unbacked else super()._symbol(symbol)


def _tell_the_sizes(program: Program) -> bool:
    """Whether the inputs tell the sizes of all steps and results: a number of the program may be in them, which is asked for behind writes."""
    sizes = _Told()
    for b in program.inputs:
        shape, strides = ([hint_of(n) for n in numbers] for numbers in (b.shape, b.strides))
        sizes.seen(b, torch.empty_strided(shape, strides, device="meta"))
    try:
        for step in expand(program).steps:
            sizes.step(step)
        for output in program.outputs:
            sizes.value(output)
    except Unknown:
        return False
    return True
