"""The way of a compile: every stage a function, listed here once, in order.

    captured graph -> recognise -> lower -> fuse -> launches -> plan memory -> generate -> build -> plan

`run_stages` times, dumps and verifies around every stage; the stages themselves do none of that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from frameloom.assemble import assemble
from frameloom.backends import announce, build_all, generate_all, launches
from frameloom.capture.branches import calls_in
from frameloom.capture.graph import Backward, CapturedGraph, without_examples
from frameloom.capture.saved import is_view
from frameloom.capture.sized import Sized
from frameloom.capture.written_attention import recognised
from frameloom.compile_lock import others_may_compile
from frameloom.config import config
from frameloom.cuda_graphs import replayed
from frameloom.debug import Trail, log
from frameloom.draws import generator_of
from frameloom.errors import BackendError
from frameloom.gradients import Gradients
from frameloom.ir.fuse import fuse
from frameloom.ir.library import OWN
from frameloom.ir.lower import lower
from frameloom.ir.lower.batch_norm import fold_batch_norms
from frameloom.ir.lower.channels_last import LAID
from frameloom.ir.lower.constants import Constants, evaluate
from frameloom.ir.memory import plan_memory
from frameloom.ir.program import Extern, Kernel, KernelList, Program, View
from frameloom.ir.size import Int, same
from frameloom.ir.text import show
from frameloom.ir.verify import verify
from frameloom.onednn import onednn
from frameloom.options import Options
from frameloom.report import GraphReport, KernelReport
from frameloom.runnable import runnable
from frameloom.steady import steady

Compiled = Callable[..., Any]


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
    """A function from the graph's inputs to the tuple of its outputs, and the report on how it was made."""
    if captured.backward is None:
        return _compile_one(captured, options, trail)
    # What is only saved between the passes lies in memory as suits our own kernels.
    n_results = captured.backward.n_results
    alone = replace(captured, backward=None, visible=n_results)
    forward, report = _compile_one(alone, options, trail)
    laid = _laid(report, captured.backward)
    told = weakref.ref(report)  # nobody may want to know

    def compile_backward(graph: torch.fx.Graph, examples: tuple[Any, ...]) -> Compiled:
        """Called when the first backward pass comes."""
        own = Trail(f"{trail.name} backward")
        for k, node in enumerate(graph.find_nodes(op="placeholder")):
            like, example = node.meta["val"], examples[k]
            if not isinstance(example, torch.Tensor):
                continue
            strides = laid.get(k, like.stride()) if isinstance(like, Sized) else example.stride()
            if not all(map(same, strides, like.stride())):
                node.meta[LAID] = strides
        behind = replace(
            captured,
            graph=graph,
            inputs=(),
            examples=examples,
            mutated=(),
            visible=None,
            frozen=(),
            owned=True,
            n_ops=sum(n.op == "call_function" and not is_view(n) for n in graph.nodes),
            backward=None,
        )
        try:
            compiled, part = _compile_one(behind, options, own)
        finally:
            own.close()
        if (whole := told()) is not None:
            whole.backward.append(part)
        return compiled

    captured = replace(without_examples(captured), inputs=())
    return Gradients(forward, compile_backward, captured), report


def _laid(report: GraphReport, how: Backward) -> dict[int, tuple[Int, ...]]:
    """The strides of what the forward graph makes to be saved, by its place in what the backward graph is given."""
    if report.fused is None or not how.sizes:
        return {}
    outputs = [report.fused.outputs[k] for k in how.saved_outputs]
    places = enumerate(outputs, len(how.saved_inputs))
    return {k: made.strides for k, made in places if isinstance(made, View)}


def _compile_one(
    captured: CapturedGraph, options: Options, trail: Trail
) -> tuple[Compiled, GraphReport]:
    if config.debug or "graph" in config.logs:
        readable = _readable(captured)
        trail.dump("graph_readable.py", readable)
        log("graph", readable)
    if config.debug and not calls_in(captured.graph):
        trail.dump("graph_runnable.py", runnable(captured))
    if options.backend == "eager":
        # Its `forward`, past the hooks that a program may set for all modules.
        return captured.gm.forward, GraphReport(without_examples(captured))
    if options.backend is not None:
        return _call_backend(captured, options), GraphReport(without_examples(captured))
    return _run_stages(captured, options, trail)


def _compile_steady(captured: CapturedGraph, options: Options, trail: Trail) -> Compiled:
    return _run_stages(captured, options, trail, others_may_compile)[0]


def _run_stages(
    captured: CapturedGraph,
    options: Options,
    trail: Trail,
    while_building: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[Compiled, GraphReport]:
    program: Any = captured
    programs = []
    announce(captured)
    for name, stage, file in PROGRAM_STAGES:
        before = program
        with trail.stage(name):
            program = stage(program)
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
    kernels = [s for s in program.steps if isinstance(s, Kernel | KernelList)]
    with trail.stage("generate"):
        texts = generate_all(program, options.tune, ahead=True)
    for name, text in texts.readable():
        trail.dump(name, text)
        log("kernels", text)
    with trail.stage("build"), while_building():
        built = build_all(texts)
    with trail.stage("plan"):
        told = steady(captured, options, trail.name, _compile_steady)
        plan = assemble(captured, program, memory, built, told)
        if options.replay:
            plan = replayed(plan, program, captured)
    origins = {k.name: k.origin for k in kernels}
    report = GraphReport(
        without_examples(captured),
        kernels=tuple(KernelReport(e.name, e.code, origins[e.name]) for e in texts.entries()),
        library_calls=tuple(
            s.target for s in program.steps if isinstance(s, Extern) and s.target not in OWN
        ),
        lowered=programs[0],
        fused=programs[-1],
        seconds=dict(trail.seconds),
    )
    return plan, report


def _call_backend(captured: CapturedGraph, options: Options) -> Compiled:
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
