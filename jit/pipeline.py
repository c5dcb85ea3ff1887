"""The compile pipeline: the order of its stages, each of which is a function.

    captured graph -> recognise -> lower -> fuse -> launches -> plan memory -> generate -> build -> plan

`_written` and `_assembled` time, dump and verify each stage; the stages themselves do none of this.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from frameloom.autograd.gradients import Gradients
from frameloom.autograd.result_views import (
    as_created,
    as_new,
    as_recorded,
    counting,
    recounted,
    restore_views,
)
from frameloom.backend.assemble import assemble
from frameloom.backend.cuda_graphs import replayed
from frameloom.backend.draws import generator_of
from frameloom.backend.hot_shapes import steady
from frameloom.backend.onednn import onednn
from frameloom.backend.targets import Texts, announce, build_all, generate_all, launches
from frameloom.capture import _capture
from frameloom.capture.autograd.prune import Partial
from frameloom.capture.graph_passes.attention_pattern import recognised
from frameloom.capture.recording.branches import calls_in
from frameloom.capture.recording.captured_graph import Backward, CapturedGraph, without_examples
from frameloom.capture.speculation.assume import restarting
from frameloom.capture.tensors.cast_cache import without_autocast
from frameloom.capture.tensors.schema import is_view
from frameloom.capture.tensors.sized import Sized
from frameloom.compile_lock import others_may_compile
from frameloom.config import config
from frameloom.debug import Trail, log
from frameloom.errors import BackendError
from frameloom.ir.library import OWN
from frameloom.ir.lower import lower
from frameloom.ir.lower.graph_passes.batch_norm import fold_batch_norms
from frameloom.ir.lower.graph_passes.constants import Constants, evaluate
from frameloom.ir.lower.layout.channels_last import ACTUAL_STRIDES
from frameloom.ir.passes.fuse import fuse
from frameloom.ir.passes.memory import MemoryPlan, plan_memory
from frameloom.ir.program import Program, View
from frameloom.ir.symbolic.compare import same
from frameloom.ir.symbolic.expr import Int
from frameloom.ir.text import show
from frameloom.ir.verify import verify
from frameloom.options import Options
from frameloom.report import GraphReport, KernelReport
from frameloom.runnable import runnable

Compiled = Callable[..., Any]
MUCH = 16  # from so many unfinished kernels on, the backward graph is generated while they compile


def _lower(captured: CapturedGraph) -> Program:
    seen = recognised(captured)
    if not seen.frozen:
        return lower(seen.graph, seen.constants, onednn(), generator_of, captured.visible)
    constants = Constants(seen.graph, seen.constants)
    evaluate(constants, seen.frozen)
    fold_batch_norms(constants)
    constants.drop_unused()
    return lower(constants.graph, constants.holder, onednn(), generator_of)


PROGRAM_STAGES: tuple[tuple[str, Callable[[Any], Program], str], ...] = (
    ("lower", _lower, "loops_before_fusion.txt"),
    ("fuse", fuse, "loops_after_fusion.txt"),
    ("launches", launches, "loops_of_launches.txt"),
)


def compile_graph(
    captured: CapturedGraph, options: Options, trail: Trail
) -> tuple[Compiled, GraphReport]:
    """Returns a function from the graph's inputs to the tuple of its outputs, and a report on the compile."""
    if captured.backward is None:
        return _compile_one(captured, options, trail)
    # Tensors that are only saved for the backward pass may have any layout that suits our own kernels.
    n_results = captured.backward.n_results
    graph = captured.graph
    if captured.backward.view_results:  # returned beside these, other results would be views, too
        graph = _without_view_results(graph, captured.backward)
    alone = replace(captured, graph=graph, backward=None, visible=n_results)
    half = _BackwardHalf(captured, captured.backward, options, Trail(f"{trail.name} backward"))
    forward, report = _compile_one(alone, options, trail, half.prepare)
    half.result_strides = _saved_strides(report, captured.backward)
    half.report = weakref.ref(report)  # kept alive only by those who read it
    captured = half.captured = replace(without_examples(captured), inputs=())
    return Gradients(forward, half.compile, captured), report


def _without_view_results(graph: torch.fx.Graph, how: Backward) -> torch.fx.Graph:
    """Returns the forward graph with an input, which is not read, in place of each view result."""
    forward = torch.fx.Graph()
    returned: Any = forward.graph_copy(graph, {})
    unread = forward.find_nodes(op="placeholder")[how.inputs[0]]
    forward.output(tuple([unread if k in how.view_results else n for k, n in enumerate(returned)]))
    return forward


class _BackwardHalf:
    """Compiles the backward graph at the first backward pass.  If many kernels of the forward graph are still
    being compiled when the rest is done, the source texts of the backward graph are generated in the
    meantime."""

    def __init__(
        self, captured: CapturedGraph, how: Backward, options: Options, trail: Trail
    ) -> None:
        self.captured, self.how, self.options, self.trail = captured, how, options, trail
        self.result_strides: Mapping[int, tuple[Int, ...]] = {}
        self.report: Callable[[], GraphReport | None] = lambda: None
        self._prepared: tuple[Hashable, Written] | None = None

    def prepare(self, forward: Written) -> None:
        if self.how.sizes or self.options.tune:
            return
        graph = Partial(self.how, frozenset()).graph
        examples = self.captured.examples
        outputs = [forward.programs[-1].outputs[k] for k in self.how.saved_outputs]
        strides = [
            *(_strides(examples[k]) for k in self.how.saved_inputs),
            *(o.strides if isinstance(o, View) else _strides(examples[o]) if isinstance(o, int) else None for o in outputs),
            *(layout.strides for layout in self.how.layouts),
        ]  # fmt: skip
        _record_strides(graph, strides)
        with torch._C._DisableAutocast(), torch.no_grad():
            captured = self._captured_backward(graph, ())
            written = _written(captured, self.options, self.trail, lambda *_: forward.texts.go_on())
        self._prepared = _key(graph, strides), written

    def compile(self, graph: torch.fx.Graph, examples: tuple[Any, ...]) -> Compiled:
        places = graph.find_nodes(op="placeholder")
        strides = [_strides(example) for example in examples]
        for k, node in enumerate(places):
            if strides[k] is not None and isinstance(like := node.meta["val"], Sized):
                strides[k] = self.result_strides.get(k, like.stride())
        _record_strides(graph, strides)
        written = None
        if self._prepared is not None and self._prepared[0] == _key(graph, strides):
            (_, written), self._prepared = self._prepared, None
        trail = self.trail if written is not None else Trail(self.trail.name)
        try:
            captured = self._captured_backward(graph, examples)
            compiled, part = _compile_one(captured, self.options, trail, written=written)
        finally:
            trail.close()
        if (whole := self.report()) is not None:
            whole.backward.append(part)
        return compiled

    def _captured_backward(self, graph: torch.fx.Graph, examples: tuple[Any, ...]) -> CapturedGraph:
        return replace(
            self.captured,
            graph=graph,
            inputs=(),
            examples=examples,
            mutated=(),
            counts=(),
            written={},
            visible=None,
            frozen=(),
            restarts=False,
            owned=True,
            recorded_views=frozenset(),
            creation={},
            views=frozenset(),
            n_ops=sum(n.op == "call_function" and not is_view(n) for n in graph.nodes),
            backward=None,
        )


def _strides(value: Any) -> tuple[Int, ...] | None:
    return value.stride() if isinstance(value, torch.Tensor) else None


def _record_strides(graph: torch.fx.Graph, strides: Sequence[tuple[Int, ...] | None]) -> None:
    """Notes the real strides of the inputs at their nodes, if they differ from the recorded ones."""
    for node, own in zip(graph.find_nodes(op="placeholder"), strides, strict=True):
        if own is not None and not all(map(same, own, node.meta["val"].stride())):
            node.meta[ACTUAL_STRIDES] = own


def _key(graph: torch.fx.Graph, strides: Sequence[tuple[Int, ...] | None]) -> Hashable:
    """Returns a key that is equal for equal parts of one backward graph."""
    return tuple(node.name for node in graph.nodes), tuple(strides)


def _saved_strides(report: GraphReport, how: Backward) -> dict[int, tuple[Int, ...]]:
    """Returns the strides of the results that the forward graph saves, by their position among the inputs of
    the backward graph."""
    if report.fused is None or not how.sizes:
        return {}
    outputs = [report.fused.outputs[k] for k in how.saved_outputs]
    places = enumerate(outputs, len(how.saved_inputs))
    return {k: output.strides for k, output in places if isinstance(output, View)}


def _compile_one(
    captured: CapturedGraph,
    options: Options,
    trail: Trail,
    meanwhile: Callable[[Written], object] | None = None,
    written: Written | None = None,
) -> tuple[Compiled, GraphReport]:
    """Compiles one graph.  `meanwhile` is called if many kernels are still being compiled.  `written`: the
    generated texts, if they exist already."""
    if config.debug or "graph" in config.logs:
        readable = _readable(captured)
        trail.dump("graph_readable.py", readable)
        log("graph", readable)
    if config.debug and not calls_in(captured.graph):
        trail.dump("graph_runnable.py", runnable(captured))
    if options.backend is not None:
        compiled = _isolate(_call_backend(captured, options), captured)
        compiled = restarting(compiled) if captured.restarts else compiled
        return compiled, GraphReport(without_examples(captured))
    if written is None:
        announce(captured)
        written = _written(captured, options, trail)
    if meanwhile is not None and written.texts.go_on() >= MUCH:
        try:
            meanwhile(written)
        except Exception:
            # It is tried again, and the error reported, at the first backward pass.
            if config.verify:
                raise
        except BaseException:
            written.texts.close()
            raise
    return _assembled(captured, options, trail, written)


def _compile_steady(captured: CapturedGraph, options: Options, trail: Trail) -> Compiled:
    announce(captured)
    written = _written(captured, options, trail)
    return _assembled(captured, options, trail, written, others_may_compile)[0]


@contextmanager
def _without_modes() -> Iterator[None]:
    """Constants are computed on the CPU, regardless of the default device that the program has set."""
    with torch._C.DisableTorchFunction():
        yield


@dataclass(frozen=True)
class Written:
    """A graph after code generation, before its kernels are compiled."""

    programs: Sequence[Program]  # after each stage
    memory: MemoryPlan
    texts: Texts


@_without_modes()
def _written(
    captured: CapturedGraph,
    options: Options,
    trail: Trail,
    between: Callable[..., object] | None = None,
) -> Written:
    """Lowers, optimizes and generates.  `between` is called after each step; without it, generated kernels
    for a GPU start to compile at once."""
    program: Any = captured
    programs = []
    for name, stage, file in PROGRAM_STAGES:
        before = program
        with trail.stage(name):
            program = stage(program)
        if between is not None:
            between()
        if program is before:
            continue
        if config.verify:
            verify(program, blame=name)
        programs.append(program)
        if config.debug or "loops" in config.logs:
            text = show(program)
            trail.dump(file, text)
            log("loops", f"after {name}\n{text}")
    with trail.stage("memory"):
        memory = plan_memory(program)
    with trail.stage("generate"):
        texts = generate_all(program, options.tune, between is None, between)
    for name, text in texts.readable():
        trail.dump(name, text)
        log("kernels", text)
    return Written(programs, memory, texts)


@_without_modes()
def _assembled(
    captured: CapturedGraph,
    options: Options,
    trail: Trail,
    written: Written,
    while_building: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[Compiled, GraphReport]:
    program = written.programs[-1]
    with trail.stage("build"), while_building():
        built = build_all(written.texts)
    with trail.stage("plan"):
        specializer = steady(captured, options, trail.name, _compile_steady)
        plan = assemble(captured, program, written.memory, built, specializer)
        if options.replay:
            plan = recounted(
                replayed(plan, program, captured), captured.written, captured.recorded_views
            )
        counted = {b for call in program.library_calls for b in call.changes}
        if any(program.inputs[k] in counted for k in captured.mutated):
            plan = counting(plan, captured.versions, captured.recorded_views)
        plan = as_created(plan, captured.creation)
    if config.verify == "all" and while_building is nullcontext:
        from frameloom.backend.checked import checked  # imported here to keep start-up short

        plan = checked(plan, written.programs[0], captured, trail.name)
    origins = {s.name: s.origin for s in program.launches}
    entries = written.texts.entries()
    report = GraphReport(
        without_examples(captured),
        kernels=tuple(KernelReport(e.name, e.code, origins[e.name]) for e in entries),
        library_calls=tuple(
            call.target for call in program.library_calls if call.target not in OWN
        ),
        lowered=written.programs[0],
        fused=program,
        seconds=dict(trail.seconds),
    )
    return plan, report


def _call_backend(captured: CapturedGraph, options: Options) -> Compiled:
    if options.backend == "eager":
        # Its `forward`, to skip the hooks that a program may set for all modules.
        forward: Compiled = captured.gm.forward
        return forward
    assert callable(options.backend)
    try:
        compiled: Compiled = options.backend(captured.gm, list(captured.examples))
    except Exception as error:
        raise BackendError(
            f"backend {options.backend!r} raised {type(error).__name__}: {error}"
        ) from error
    if not callable(compiled):
        raise BackendError(
            f"backend {options.backend!r} returned {type(compiled).__name__}; expected a function of the example inputs"
        )
    return compiled


def _isolate(compiled: Compiled, captured: CapturedGraph) -> Compiled:
    """Wraps a backend's function so that it runs without frame hook and without autograd.  The code of a
    backend is not code of the program: the frame hook would compile it for that backend again and again.
    Autograd's histories are made outside of it, as with our own plans: a graph writes to parameters, too."""
    views_behind = captured.visible is not None  # a forward graph, which becomes an autograd node
    # The closure below does not keep `captured`, which has the tensors of the first call.
    compiled = counting(compiled, captured.versions, captured.recorded_views)
    views, recorded = captured.views, captured.recorded_views

    def run(*inputs: Any) -> Any:
        suspended = _capture.hook_suspend(True)
        try:
            # The graph contains the casts that the program's settings require.
            with torch.no_grad(), without_autocast():
                outputs = compiled(*inputs)
        finally:
            _capture.hook_suspend(suspended)
        if views_behind:
            return tuple([as_new(m, inputs) for m in outputs])
        return as_recorded(
            restore_views(outputs, views, recorded, inputs), recorded & views, inputs
        )

    result: Compiled = as_created(
        recounted(run, captured.written, captured.recorded_views), captured.creation
    )
    return result


def _readable(captured: CapturedGraph) -> str:
    lines = []
    for node in captured.graph.nodes:
        value = node.meta.get("val")
        shape = (
            "" if not hasattr(value, "dtype") else f"  # {str(value.dtype)[6:]}{list(value.shape)}"
        )
        stack = f"  {node.meta['stack']}" if node.meta.get("stack") else ""
        lines.append(f"{node.format_node()}{shape}{stack}")
    return "\n".join(lines)
