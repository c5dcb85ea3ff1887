"""Closes a recorded graph: a forward graph, and a backward graph where the outputs have gradients.

In: the recorder, and the Fakes that the program reads after the graph. Out: a CapturedGraph without the
    inputs that it does not read, and without ops whose results are unread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.autograd.history import check_inputs
from frameloom.capture.autograd.outputs import (
    Outputs,
    creation_of,
    has_history,
    recorded_views,
    tracked_views,
)
from frameloom.capture.autograd.trace import Joint, wants_gradients
from frameloom.capture.recording.captured_graph import CapturedGraph
from frameloom.capture.recording.dead_calls import has_no_elements, is_refused, is_unread
from frameloom.capture.recording.unbacked_sizes import (
    assumed,
    avoid_parts,
    check_returned,
    numbers_compared,
)
from frameloom.capture.recording.views import check_bits, check_memory_behind
from frameloom.capture.recording.writes import forget_values, write_back, written_results
from frameloom.capture.symbolic.saved_sizes import needed_for_sizes, symbols_in
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import current, view_chain
from frameloom.capture.tensors.schema import may_raise, stays_unused
from frameloom.config import config
from frameloom.errors import Avoid

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder


def remake_histories(recorder: Recorder, outputs: Sequence[Fake]) -> None:
    """Lets autograd make new histories for views whose base was written to, and records their ops."""
    recorder.current_call.site = None
    with recorder:
        for fake in outputs:
            for f in view_chain(fake):
                has_history(f)


def finish(recorder: Recorder, outputs: Sequence[Fake]) -> CapturedGraph:
    """Closes the graph. Outputs alias inputs and each other as the program's tensors do."""
    remake_histories(recorder, outputs)
    if wants_gradients(outputs):
        avoid_parts(recorder)
    check_memory_behind(outputs)
    check_bits(outputs)
    recorder.layout_assumptions.make_guards(outputs)
    mutated = write_back(recorder)
    counts = {i: recorder.inputs[i][2].memory.root.counted for i in mutated}
    recorded, multi_output = recorded_views(outputs)
    views = tracked_views(outputs, recorded | multi_output)
    # Plans make views in the mode in which they are called.
    creation = creation_of(outputs, multi_output, () if recorder.modes.grad else recorded)
    values = forget_values(outputs)
    backward, results, views_behind = None, outputs, ()
    if config.gradients:
        check_inputs(recorder)
    if wants_gradients(outputs):
        # A backward graph gets sizes from the call's inputs, not sizes computed from them.
        recorder.shape_env.specialize_symbols(lambda symbol: symbol.source.origin is None)
        how = Outputs(outputs)
        results, views_behind = how.results, how.views
        nodes, backward = Joint(recorder, how, values).cut()
    else:
        nodes = [current(fake, recorder) for fake in outputs]
    check_returned(recorder, nodes)
    written = written_results(results, views_behind)
    recorder.graph.output(tuple(nodes))
    _drop_dead(recorder)
    read = backward.read_inputs() if backward is not None else ()
    given, used = _inputs_read(recorder, read)
    for fake in recorder.fakes:
        fake.node = fake.memory = fake.view_of = None
    return CapturedGraph(
        graph=recorder.graph,
        constants=recorder.constants,
        inputs=tuple(given[i][0] for i in used),
        examples=tuple(given[i][1] for i in used),
        mutated=tuple(used.index(i) for i in mutated),
        counts=tuple(counts.values()),
        written=written,
        recorded_views=recorded if backward is None else frozenset(),
        creation=creation if backward is None else {},
        views=views if backward is None else frozenset(),
        n_ops=recorder.n_ops,
        shape_env=recorder.shape_env,
        backward=backward and backward.renumbered(used),
    )


def _inputs_read(
    recorder: Recorder, read: Collection[int]
) -> tuple[list[tuple[Any, Any]], list[int]]:
    """Returns all possible inputs, as pairs of a key and the value in the captured call, and the positions of
    those that the graph takes: those that it reads, that the backward graph reads (`read`), or that sizes
    come from."""
    if numbers := [s for s in recorder.shape_env.symbols if hasattr(s.source, "number")]:
        # Sizes that turned out to equal others may depend on symbols that no op takes.
        met = {*symbols_in([n.meta.get("val") for n in recorder.graph.nodes])}
        for symbol in numbers:
            if symbol in met:
                recorder.numbers.size(recorder.shape_env.make({(symbol,): 1}))
    placeholders = recorder.all_placeholders()
    given = [
        *((key, real) for key, real, _ in recorder.inputs),
        *((key, n) for key, n, _ in recorder.numbers.inputs),
    ]
    kept = {p for i, p in enumerate(placeholders) if p.users or i in read}
    unread = {given[i][0]: p for i, p in enumerate(placeholders) if p not in kept}
    kept.update(
        needed_for_sizes(recorder.graph.nodes, unread, recorder.shape_env.unbacked_conditions())
    )
    for p in unread.values():
        if p not in kept:
            recorder.graph.erase_node(p)
    return given, [i for i, p in enumerate(placeholders) if p in kept]


def _drop_dead(recorder: Recorder) -> None:
    stays = recorder.numbers.check() | {source.node for source in assumed(recorder)}
    stays |= numbers_compared(recorder)
    unread: set[torch.fx.Node] = set()
    for node in reversed(recorder.graph.nodes):
        if node.op in ("placeholder", "output"):
            continue
        # No kernel would report this error; ops that may raise depending on data are checked in each call.
        if has_no_elements(node) and not may_raise(node) and is_refused(node):
            raise Avoid(node.meta["site"])
        if node in stays or not is_unread(node, unread):
            continue
        if stays_unused(node):
            continue
        if is_refused(node):
            raise Avoid(node.meta["site"])
        unread.add(node)
        if not node.users:
            recorder.graph.erase_node(node)
