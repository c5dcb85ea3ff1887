"""The backward graph: what autograd does with the Fakes of a recording, recorded after it.

The recording runs under autograd, so the Fakes have the history that the program's tensors would have. When
the graph is closed, `Joint` asks autograd for the gradients of its outputs, and records every op of that like
any other. The one long graph is cut in two: besides the program's outputs, the forward graph returns what the
backward graph reads."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from frameloom.capture.autograd.accumulate_order import insertion_order
from frameloom.capture.autograd.checkpoint_regions import REGION, Regions, memory_of
from frameloom.capture.autograd.custom_function import with_functions
from frameloom.capture.autograd.gradient_flow import (
    TOTAL,
    needed,
    note_leading,
    passes_reading,
    reach,
    readers_in,
)
from frameloom.capture.autograd.gradient_layouts import copy_with_layout
from frameloom.capture.autograd.history import NO_END, Histories
from frameloom.capture.autograd.outputs import Outputs, has_history
from frameloom.capture.autograd.partition import (
    CutProblem,
    choose,
    computed_from,
    given_to,
    is_repeated,
    reached,
    read_for_others,
)
from frameloom.capture.autograd.recomputed_norms import renormalize
from frameloom.capture.autograd.redrawn import (
    STATE,
    can_be_redrawn,
    copy_with,
    forget_state,
    note_state,
    operands_of,
)
from frameloom.capture.recording.backward_marks import FROM
from frameloom.capture.recording.captured_graph import (
    READ_AS,
    Backward,
    ChangeChecks,
    Layout,
    Noticed,
    ViewOutput,
    call_like,
    placeholder_like,
    recorded_behind,
)
from frameloom.capture.recording.special_ops import is_checked
from frameloom.capture.shapes.iteration import is_dense
from frameloom.capture.symbolic.chain_probe import storage_of
from frameloom.capture.symbolic.saved_sizes import SavedSize, given_sizes, is_size, symbols_in
from frameloom.capture.tensors.cast_cache import without_autocast
from frameloom.capture.tensors.fake import Fake
from frameloom.capture.tensors.functionalize import current
from frameloom.capture.tensors.leaves import real_is_leaf
from frameloom.capture.tensors.sized import empty_strided, has_sizes, strides_of
from frameloom.errors import Break, let_mistakes_through
from frameloom.ir.symbolic.expr import Symbol

if TYPE_CHECKING:
    from frameloom.capture.recording.recorder import Recorder

Node = torch.fx.Node
run_backward: Any = torch.autograd.Variable._execution_engine.run_backward


def wants_gradients(outputs: Sequence[Fake]) -> bool:
    """Whether autograd has to know of an output. A view made without gradient mode still is a view of a
    tensor with a history."""
    return any(has_history(f) or (f.requires_grad and has_history(f.memory.root)) for f in outputs)


def _place(fake: Fake) -> int:
    """Returns the position in the order in which the program made the histories of tensors."""
    node: Any = fake.grad_fn
    return -1 if node is None else int(node._sequence_nr())


class Joint:
    """The recording of `recorder`, followed by the recorded gradients of `outputs`."""

    def __init__(self, recorder: Recorder, outputs: Outputs, held: Mapping[int, Node]) -> None:
        """`held`: per id of an output, the value of its own that others read."""
        self.recorder = recorder
        self.outputs = outputs
        self.results = outputs.results
        self.tangents = [n for n, f in enumerate(self.results) if f.requires_grad]
        if len(self.tangents) > 1:
            # A backward pass reaches them in the opposite order.
            self.tangents.sort(key=lambda n: _place(self.results[n]))
        self.inputs = [n for n, (_, _, f) in enumerate(recorder.inputs) if f.requires_grad]
        if any(recorder.inputs[n][2].memory.version for n in self.inputs):
            raise Break("gradient", "an input that needs a gradient is changed in place")
        if recorder.history.hidden_writes:
            raise Break("gradient", "a tensor is changed in place behind autograd's back")
        self.returned = [current(fake, recorder) for fake in self.results]
        for n, (fake, node) in enumerate(zip(self.results, self.returned, strict=True)):
            if (value := held.get(id(fake), node)) is not node:
                value.meta.setdefault(READ_AS, []).append(n)
        if any(map(is_checked, recorder.graph.nodes)):
            raise Break("gradient", "a gradient that depends on data to be defined")
        self.last = recorder.graph._root.prev  # the last node of the forward graph
        self.histories = Histories([self.results[n] for n in self.tangents], recorder)
        led = frozenset[int]().union(*(self._led_to(k) for k in range(len(self.inputs))))
        if any(not passes <= led for passes in self.histories.saved.values()):
            # No pass would check whether that was changed.
            raise Break("gradient", "what is saved along a history that leads to no input")
        if recorder.history.replaced in self.histories.saved:
            raise Break("gradient", "a tensor that is saved for a gradient gets other data")
        # A call may begin in inference mode and leave it. In inference mode, the decompositions of ops are
        # not recorded.
        with torch.inference_mode(False):
            self.seeds = [self._seed(n) for n in self.tangents]
            self.gradients = self._differentiate()

    def _seed(self, result: int) -> Fake:
        """Makes a placeholder for the gradient of a result."""
        like = self.results[result]
        # A gradient mostly has the strides of a fresh tensor, also in dimensions of size 1, where results may
        # keep an operand's strides.
        usual = not is_dense(like) or (not has_sizes(like.shape) and like.is_contiguous())
        strides = strides_of(like.shape) if usual else like.stride()
        meta = empty_strided(like.shape, strides, like.dtype)
        return self.recorder.placeholder(f"tangent_{result}", Fake(meta, like.device))

    def _differentiate(self) -> list[Fake | None]:
        roots = [self.results[n] for n in self.tangents]
        leaves = [self.recorder.inputs[n][2] for n in self.inputs]
        if not leaves:  # autograd's own exception for this differs between versions
            raise Break("gradient", "a history that leads to no input")

        # The gradient of such a result from other results is asked for, too (`totals`).
        between = [r for r in roots if len(roots) > 1 and r.grad_fn is not None]

        def gradients() -> Any:
            # In this thread, because the dispatch mode belongs to it.
            with torch.autograd.set_multithreading_enabled(False):
                # torch.autograd.grad imports SymPy to check the gradients that it gets, which takes 0.3 s.
                ends, seeds = tuple(leaves + between), tuple(self.seeds)
                return run_backward(tuple(roots), seeds, False, False, ends, True, False)

        self.recorder.current_call.enter(torch.autograd.grad)
        self.recorder.history.notes_nodes = True
        self.recorder.layout_assumptions.begin()
        try:
            with without_autocast():
                computed = list(self.recorder.run(gradients, (), {}))
        except (RuntimeError, IndexError, ZeroDivisionError, AssertionError) as error:
            # The program's own error, which its own call of backward raises; or a shape function's error: for
            # means of nothing, or for a dimension.
            let_mistakes_through(error)
            raise Break("gradient", str(error).partition("\n")[0]) from error
        finally:
            self.recorder.history.notes_nodes = False
        note_leading(self._later(), self.histories, [s.node for s in self.seeds])
        totals = zip(between, computed[len(leaves) :], strict=True)
        self.totals = {id(r): current(g, self.recorder) for r, g in totals if g is not None}
        computed = computed[: len(leaves)]
        if self.recorder.shape_env.symbols:
            self.recorder.layout_assumptions.make_gradient_guards(
                roots, self.seeds, leaves, computed, self.histories.saved
            )
        return computed

    # --- cutting

    def cut(self) -> tuple[list[Node], Backward]:
        """Returns what the forward graph returns (results, then saved tensors), and the backward graph, with
        inputs numbered as recorded. Removes the nodes of the gradients from the recording."""
        recorder, views = self.recorder, self.outputs.views
        results = self.returned
        # A view is not kept, because the autograd node does not have it.
        kept = [n for k, n in enumerate(results) if k not in views]
        placeholders = recorder.all_placeholders()
        copies: dict[Node, Node] = {}
        graph = torch.fx.Graph()
        wanted = [k for k, g in enumerate(self.gradients) if g is not None]
        # Passes reach these inputs, too: the nodes that made them run without a gradient, and so do hooks.
        bare = [
            self.inputs[k] for k, g in enumerate(self.gradients) if g is None and self._led_to(k)
        ]
        if not wanted or (bare and len(self.tangents) > 1):
            raise Break("gradient", "a history along which no gradient flows")
        ends = [current(self.gradients[k], recorder) for k in wanted]  # type: ignore[arg-type]
        drawn = self._drawn()
        wanted, ends = self._in_ready_order(wanted, ends)
        renormalize(recorder, self._later(), results)
        ends = [*map(self._in_leaf_layout, wanted, ends)]
        regions = Regions(recorder.graph, self.histories)
        # includes views that are made again for a gradient that was written to
        later = self._later()
        order = needed(recorder.graph, ends)
        forward = [n for n in order if n not in later and not is_size(n)]
        read = {a for n in order if n in later for a in operands_of(n) if not is_size(a)} | set(
            ends
        )
        seeds = [s.node for s in self.seeds]
        reached_from = reach(order, seeds)
        between = self._note_totals(order, reached_from)
        readers = readers_in([n for n in order if n in later], ends, reached_from, len(self.seeds))
        saved = self._saved(forward, read - later, kept, regions.results(forward), readers)
        if not saved.isdisjoint(regions.copies.values()):
            # Neither kept nor recomputed: a result of another region, read through a closure.
            raise Break("gradient", "a checkpointed region reads what only the program keeps")
        recomputed, _ = reached(forward, read, saved)
        for n in drawn:
            if n.meta[STATE] not in saved:
                forget_state(recorder.graph, n)
        position = {p: k for k, p in enumerate(placeholders)}
        from_inputs = [n for n in forward if n in saved and n in position and n not in self.copied]
        self._check_counts(from_inputs)
        from_outputs = [n for n in forward if n in saved and n not in from_inputs]
        saved_sizes = self._saved_sizes(order, later)
        unbacked = [self._unbacked(c.symbol) for c in saved_sizes if c.kind == "unbacked"]
        returned = [*results, *unbacked]
        places = []
        for n in from_outputs:
            if n not in kept:
                returned.append(self._copy(n) if n in self.copied else n)
            places.append(results.index(n) if n in kept else len(returned) - 1)
        for n in (*from_inputs, *from_outputs):
            copies[n] = placeholder_like(graph, n)
        for c in saved_sizes:
            size = recorder.shape_env.make({(c.symbol,): 1})
            graph.placeholder(f"size_{c.symbol.name}").meta.update(val=size, stack="")
        for seed in seeds:
            copies[seed] = placeholder_like(graph, seed)
        sizes = given_sizes(graph)
        copies.update({n: sizes.node(n.meta["val"]) for n in order if is_size(n)})
        for n in order:
            if n in later:
                copy_with(graph, n, recomputed, copies)
        for n in ends:
            copy_with(graph, n, recomputed, copies)
        graph.output(tuple(copies[e] for e in ends))
        whole = None
        if recorder.history.functions:
            own = set(seeds).union(regions.copies.values())
            nodes = [*(n for n in self._recorded() if n not in own), *unbacked]
            whole = with_functions(nodes, recorder, [*results, *unbacked])
        later.update(regions.copies.values())
        for n in reversed(recorder.graph.nodes):
            if n in later:
                recorder.graph.erase_node(n)
        changed = regions.may_change(from_inputs, forward, saved, recomputed)
        return returned, Backward(
            build=lambda: graph,
            outputs=tuple(self.outputs.made_of),
            view_results=views,
            saved_inputs=tuple(position[n] for n in from_inputs),
            saved_outputs=tuple(places),
            n_results=len(results),
            tangents=tuple(self.tangents),
            inputs=(*(self.inputs[k] for k in wanted), *bare),
            n_inputs=len(placeholders),
            layouts=tuple(map(Layout.of, self.seeds)),
            sizes=saved_sizes,
            n_unbacked=len(unbacked),
            leading=tuple(
                self._led_to(k) | reached_from.get(e, set())
                for k, e in zip(wanted, ends, strict=True)
            ),
            saving=self.histories.saving,
            between=between,
            checks=ChangeChecks(
                self._noticed(regions, saved, passes_reading(forward, readers, recomputed)),
                frozenset(map(position.__getitem__, changed)),
                frozenset(position[n] for n in self._unsaved_leaves(order) if n in from_inputs),
            ),
            turns_on=not torch.is_grad_enabled(),
            with_functions=whole,
            reentrant=any(r.reentrant for n in order if (r := n.meta.get(REGION)) is not None),
        )

    def _check_counts(self, saved: Collection[Node]) -> None:
        """Breaks where one input is saved and another one of the same memory is written. Autograd counts
        writes to one part of a tensor for its other parts, too, and refuses the backward pass if the write
        comes later."""
        inputs = self.recorder.inputs
        written = {storage_of(real) for _, real, f in inputs if f.memory.version}
        if not written:
            return
        given = dict(zip(self.recorder.placeholders, inputs, strict=True))
        # Inputs that are numbers have no tensor, so nothing is written to them.
        if any(n in given and storage_of(given[n][1]) in written for n in saved):
            raise Break(
                "gradient", "inputs of one memory, of which one is saved and another written"
            )

    def _note_totals(
        self, order: Collection[Node], reached_from: Mapping[Node, set[int]]
    ) -> tuple[int, ...]:
        """Returns the results that get gradients from other results that the program sees, or from a view of
        them that does."""
        shown = {o for o in self.outputs.made_of if isinstance(o, int)}
        between, needed = [], set(order)
        for k, (n, seed) in enumerate(zip(self.tangents, self.seeds, strict=True)):
            total = self.totals.get(id(self.results[n]))
            if n in shown and total is not None and total not in needed and total is not seed.node:
                # A Function that does not use the gradient. Hooks of the result are called nevertheless.
                raise Break("gradient", "a gradient of a result that no input needs")
            if n in shown and total in needed and reached_from.get(total, set()) > {k}:
                total.meta.setdefault(TOTAL, []).append(seed.node.name)
                between.append(n)
        for n in between:
            view = self.outputs.views.get(n)
            if view is not None and not view.of_input and view.number not in between:
                between.append(view.number)
        return tuple(between)

    def _led_to(self, n: int) -> frozenset[int]:
        """Returns the results whose history leads to an input."""
        return self.histories.leading_to(self.recorder.inputs[self.inputs[n]][2])

    def _in_ready_order(
        self, wanted: Sequence[int], ends: Sequence[Node]
    ) -> tuple[list[int], list[Node]]:
        """Returns both lists in the order in which autograd has to get the gradients."""
        inputs, ready = self.recorder.inputs, self.histories.ready
        pairs = [*zip(wanted, ends, strict=True)]
        at_once = -NO_END, 0  # for an input that is a result itself
        pairs.sort(key=lambda pair: ready.get(id(inputs[self.inputs[pair[0]]][2]), at_once))
        leaves = [p for p in pairs if real_is_leaf(inputs[self.inputs[p[0]]][1])]
        others = [p for p in pairs if p not in leaves]
        ordered = insertion_order(leaves, others)
        return [k for k, _ in ordered], [e for _, e in ordered]

    def _in_leaf_layout(self, wanted: int, end: Node) -> Node:
        """Returns `end` in the leaf's layout where autograd copies a gradient into it: where a node still has
        to read the gradient, too. The layouts differ where sizes are 1."""
        _, real, fake = self.recorder.inputs[self.inputs[wanted]]
        if has_sizes(fake.shape) or 1 not in fake.shape:
            return end  # symbolic sizes are not compared, because an answer would become a guard
        # A permuted leaf is rare.
        if not real_is_leaf(real) or not fake.is_contiguous():
            return end
        own, other = fake.stride(), end.meta["val"].stride()
        if not has_sizes(own, other) and own == other:
            return end
        when = self.histories.ready.get(id(fake))
        # Readers that were made before the node that hands the gradient over run after it.
        if when is None or all(n.meta.get(FROM, -when[0]) >= -when[0] for n in end.users):
            return end
        return copy_with_layout(end, fake, self.recorder)

    def _saved(
        self,
        forward: list[Node],
        read: set[Node],
        results: list[Node],
        once: set[Node],
        readers: Mapping[Node, set[int]],
    ) -> set[Node]:
        """Chooses the nodes to save. Autograd itself would save the tensors whose values it reads."""
        recorder = self.recorder
        seen = {id(f.memory) for f in self.results}
        seen.update(id(f.memory) for _, _, f in recorder.inputs)
        eager = {id(memory) for n in read if (memory := memory_of(n)) is not None}
        visible = [n for n in forward if id(memory_of(n)) in seen]
        held = {*recorder.placeholders, *results}
        changed = {
            p
            for p, (_, _, f) in zip(recorder.placeholders, recorder.inputs, strict=True)
            if f.memory.version
        }
        free = {n for n in visible if n in held - changed and id(memory_of(n)) in eager}
        never = {n for n in visible if n in held} - free
        self.copied = {n for n in visible if n not in held}
        # Eager has these twice: as results, and recomputed in the backward pass.
        recomputed = {n for n in free if REGION in n.meta}
        needed = given_to([n for n in forward if REGION in n.meta]) - changed
        free, never = free | needed, never - needed
        if recorder.history.budget is not None:
            # Eager does not check values that it does not keep for changes before the backward pass.
            needed = {n for n in given_to(forward) & never - changed if not is_repeated(n)}
            never, self.copied = never - needed, self.copied | needed
        if recorder.history.writes_unnoticed:
            apart = computed_from(forward, free)
        else:
            apart = read_for_others(forward, readers, free) if len(self.seeds) > 1 else set()
        free, never = free - recomputed, never | recomputed
        problem = CutProblem(forward, read, free, never, self.copied, once, apart)
        return choose(problem, recorder.history.budget)

    def _noticed(
        self, regions: Regions, saved: Collection[Node], passes: Mapping[Node, set[int]]
    ) -> tuple[Noticed, ...]:
        """Returns the tensors that autograd itself would save for passes in which the backward graph does not
        read them.

        `passes`: per saved value, the passes that read it."""
        if self.recorder.history.budget is not None:
            return ()  # eager saves less, too
        wanted = regions.checked_memories if regions.inside else self.histories.saved
        results = {f.memory: n for n, f in reversed([*enumerate(self.results)])}
        held: dict[int, set[int]] = {}
        for n in saved:
            if n not in self.copied:
                held.setdefault(id(memory_of(n)), set()).update(passes.get(n, ()))
        noticed = []
        for memory, tangents in wanted.items():
            number = results.get(memory) if memory.input is None else memory.input
            unread = tangents.difference(held.get(id(memory), ()))
            if number is not None and unread:
                noticed.append(Noticed(memory.input is not None, number, frozenset(unread)))
        return tuple(noticed)

    def _unsaved_leaves(self, order: Sequence[Node]) -> list[Node]:
        """Returns the leaf inputs that eager's nodes do not save themselves."""
        if any(REGION in n.meta for n in order):
            return []  # eager computes from them again
        recorder = self.recorder
        return [
            p
            for p, (_, real, f) in zip(recorder.placeholders, recorder.inputs, strict=True)
            if id(f) not in self.histories.itself and real_is_leaf(real)
        ]

    def _drawn(self) -> list[Node]:
        """Returns the nodes of the forward graph that draw random numbers and may be recomputed; adds
        nodes for the generator states that this takes."""
        everywhere = self.recorder.history.budget is not None
        marked = (n for n in self._recorded() if everywhere or REGION in n.meta)
        drawn = [n for n in marked if can_be_redrawn(n)]
        for n in drawn:
            note_state(self.recorder.graph, n)
        return drawn

    def _copy(self, n: Node) -> Node:
        """Makes a copy of `n` that the program cannot reach."""
        like = Fake(n.meta["val"].meta, n.meta["val"].device)
        return call_like(self.recorder.graph, n, torch.ops.aten.clone.default, (n,), val=like)

    def _recorded(self) -> list[Node]:
        """Returns the nodes that were recorded before those for the gradients."""
        nodes = self.recorder.graph.nodes
        return [*itertools.takewhile(lambda n: n is not self.last.next, nodes)]

    def _later(self) -> set[Node]:
        """Returns the nodes that were recorded for the gradients."""
        return {*(s.node for s in self.seeds), *recorded_behind(self.last)}

    def _unbacked(self, symbol: Symbol) -> Node:
        """Makes an unbacked size a result of the forward graph."""
        graph = self.recorder.graph
        node = graph.create_node("call_function", *symbol.source.read(), name="size")
        node.meta.update(val=self.recorder.shape_env.make({(symbol,): 1}), stack="")
        return node

    def _saved_sizes(self, order: Sequence[Node], later: Collection[Node]) -> tuple[SavedSize, ...]:
        """Returns the symbolic sizes that the backward graph needs, and the views that are made after the
        node."""
        if not self.recorder.shape_env.symbols:
            return ()
        made = (*self.outputs.made_of, *self.outputs.views.values())
        views = (o for o in made if isinstance(o, ViewOutput))
        step_arguments = [(*s.args, *s.kwargs.values()) for view in views for s in view.steps]
        values = [n.meta.get("val") for n in (*order, *(s.node for s in self.seeds))]
        symbols: dict[Symbol, None] = dict.fromkeys(symbols_in([*step_arguments, *values]))
        behind = itertools.count(len(self.results))
        if any(s.unbacked and s.source.node in later for s in symbols):
            raise Break("gradient", "sizes that data decides in the backward pass")
        # Placeholders of numbers are made on first use.
        given = {s: s.source.placeholder for s in symbols if not s.unbacked}
        number = {p: k for k, p in enumerate(self.recorder.all_placeholders())}
        return tuple(
            SavedSize(s, "unbacked", next(behind), 0)
            if s.unbacked
            else SavedSize(s, s.source.kind, number[given[s]], s.source.dim)
            for s in symbols
        )
