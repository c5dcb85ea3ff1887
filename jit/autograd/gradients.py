"""Compiled graphs under autograd: a forward and a backward plan as one node of the program's autograd graph.

`Gradients` is called like the plan of a graph without gradients, and returns the program's outputs with a
history.  What the backward plan reads is saved as PyTorch's own functions save it: a change of an input or
output in between is an error, and memory is freed with the autograd graph.  Views are made after the node, so
that autograd knows them.

The backward plan is compiled at the first backward pass, for the outputs that have a gradient there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import Any

import torch
import torch.fx

from frameloom.autograd.backward_pass import BackwardPass, Plan, sizes_among
from frameloom.autograd.gradient_arrivals import Passes
from frameloom.autograd.op_by_op import DoubleBackwardError, OpByOp, Refused, requiring_grad
from frameloom.autograd.result_hooks import give_own_node, register_hooks
from frameloom.autograd.retained_tensors import retain_after
from frameloom.autograd.saved_tensors import entries, release_saved
from frameloom.autograd.saving import Saving, picker
from frameloom.autograd.view_outputs import NOTHING, OutputBuilder, early_views
from frameloom.capture._capture import tensor_layout, tensors_lie, tensors_where
from frameloom.capture.autograd.freed_history import TWICE
from frameloom.capture.autograd.node_split import Windows
from frameloom.capture.autograd.prune import Partial
from frameloom.capture.recording.captured_graph import Backward, CapturedGraph, ViewOutput
from frameloom.capture.symbolic.saved_sizes import at_sizes, symbols_in
from frameloom.capture.tensors.schema import may_raise
from frameloom.config import config
from frameloom.debug import notice
from frameloom.ir.symbolic.conditions import Conditions

NONE: frozenset[int] = frozenset()
STRIDED = torch.strided
has_no_memory = torch._is_zerotensor
keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
may_checkpoint = torch.autograd.Variable._execution_engine.is_checkpoint_valid


class Gradients:
    """Runs a compiled graph as an autograd node.  `forward` is its plan, and `compile_backward` makes a plan
    from a backward graph.  Both come from `captured`, whose `backward` says what is saved between them."""

    is_gate = False  # whether the node only passes gradients from results to other results
    slots: Sequence[int] = ()  # of a gate: the results that get gradients, as further inputs
    # The only result of the node that has a gradient.  If its gradient is missing, the pass brings none at
    # all; autograd runs the node nevertheless.
    only_entry: Sequence[int] = ()

    def __init__(
        self,
        forward: Plan,
        compile_backward: Callable[[torch.fx.Graph, tuple[Any, ...]], Plan],
        captured: CapturedGraph,
    ) -> None:
        assert captured.backward is not None
        self.forward, self.how = forward, captured.backward
        self.op_by_op = OpByOp(captured, self.slots)
        self.captured = captured
        # `Parts` that run a call as several nodes, by the inputs at which the program can observe this.
        # None:  one node is enough.
        self._apart: dict[tuple[int, ...], Plan | None] = {}
        self.compile = compile_backward
        self.passes = Passes()
        how = self.how
        self._constant = [k for k in range(how.n_results) if k not in how.tangents]
        self.wanted = picker(how.inputs)
        if len(how.tangents) == 1:
            self.only_entry = how.tangents
        self.saving = Saving(how, self.op_by_op.numbers)
        self._reads: dict[tuple[frozenset[int], bool], frozenset[int]] = {}
        # The first result alone needs no node of its own.
        own_results = tuple(k for k in how.tangents if k not in how.view_results)
        self.several = own_results if own_results != (0,) else ()
        self._plain_outputs = not how.view_results and how.outputs == tuple(range(how.n_results))
        saved = set(how.saved_inputs)
        # The inputs that a gradient of a gradient needs in addition to the saved ones.
        self.others = tuple(k for k in self.op_by_op.reads if k not in saved)
        # Whether views that are made after the node depend on symbolic sizes.
        views = [o for o in (*how.outputs, *how.view_results.values()) if isinstance(o, ViewOutput)]
        self.views_vary = any(
            any(symbols_in((s.args, *s.kwargs.values()))) for o in views for s in o.steps
        )
        self.makes_early = not how.n_unbacked and any(v.early for v in views)
        self.nothing = (None, None, *[None] * len(how.inputs))
        self._windows = self._possible_split()

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        if self.how.turns_on:
            with torch.enable_grad():
                return self._call(inputs)
        return self._call(inputs)

    def _call(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        wanted = self.wanted(inputs)
        results: tuple[Any, ...]
        parts = None if self._windows is None else self._parts(self._windows, wanted)
        if parts is not None:
            return parts(inputs)
        early = early_views(self.how, inputs, self.views_vary) if self.makes_early else NOTHING
        results = apply(self, inputs, *wanted)
        for k in self.several:
            give_own_node(results[k])
        if self._plain_outputs:
            return results[: self.how.n_results] if self.how.n_unbacked else results
        return OutputBuilder(self.how, inputs, [*results], self.views_vary, early).outputs()

    def _possible_split(self) -> Windows | None:
        """Returns how the graph can be split into several nodes; None if the program cannot tell them from
        one."""
        windows = Windows(self.how) if len(self.how.tangents) > 1 else None
        return None if windows is None or windows.is_one else windows

    def _parts(self, windows: Windows, wanted: Sequence[Any]) -> Plan | None:
        reached, always = windows.partly_reached, windows.apart_anyway
        observed = tuple([k for k in reached if k in always or _is_observable(wanted[k])])
        try:
            return self._apart[observed]
        except KeyError:
            from frameloom.autograd.parts import Parts  # imports this module

            nodes = windows.apart(observed)
            self._apart[observed] = Parts(self, windows, nodes) if len(nodes) > 1 else None
            return self._apart[observed]

    def run(self, context: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        context.others = self.op_by_op.before(inputs, self.others)
        results = self.forward(*inputs)
        self.saving.save(context, inputs, results)
        if self._constant:
            context.mark_non_differentiable(*[results[k] for k in self._constant])
        if self.how.view_results:
            return tuple([None if k in self.how.view_results else results[k] for k in range(self.how.n_needed)])  # fmt: skip
        return results[: self.how.n_needed]

    def new_pass(
        self, part: Partial, missing: frozenset[int], examples: tuple[Any, ...]
    ) -> BackwardPass:
        """Compiles a backward pass.  `missing`: the entries of `how.tangents` without a gradient; `examples`:
        inputs of `part`."""
        run = BackwardPass(self.how, part, missing, self.op_by_op.module)
        run.plan = self._plan(part, examples)
        run.consume = getattr(run.plan, "consume", None)
        return run

    @cached_property
    def on_gpu(self) -> bool:
        return any(layout.device.type == "cuda" for layout in self.how.layouts)

    @cached_property
    def saved_layouts(self) -> tuple[bytes | None, ...]:
        """The layouts of saved inputs that backward plans expect."""
        places = self.how.graph.find_nodes(op="placeholder")
        return tuple(map(_layout, places[: len(self.how.saved_inputs)]))

    @cached_property
    def may_raise(self) -> bool:
        """Whether the computation of one input's gradient can raise.  It must not, if only other gradients
        are requested."""
        return len(self.how.inputs) > 1 and any(map(may_raise, self.how.graph.nodes))

    def reads(self, missing: frozenset[int], whole: bool = False) -> frozenset[int]:
        """Returns the positions of the saved values that such a pass reads."""
        if (positions := self._reads.get((missing, whole))) is None:
            positions = frozenset(Partial(self.how, missing, whole).reads)
            self._reads[missing, whole] = positions
        return positions

    def conditions(self) -> AbstractContextManager[list[Conditions]]:
        """Collects the conditions on sizes that code compiled inside the `with` block relies on: the guards
        of the call do not check them."""
        sizes = self.how.sizes
        return sizes[0].symbol.shape_env.apart() if sizes else nullcontext([])

    def _plan(self, part: Partial, examples: tuple[Any, ...]) -> Plan | None:
        try:
            with torch._C._DisableAutocast():
                return self.compile(part.graph, examples)
        except Exception as error:
            if config.verify:
                raise
            notice(
                "backward",
                f"a backward graph could not be compiled and runs op by op ({type(error).__name__}: {error})",
            )
            return None


def _layout(place: torch.fx.Node) -> bytes | None:
    """Returns the expected layout of a saved input; None for a number."""
    like = place.meta["val"]
    if not isinstance(like, torch.Tensor):
        return None
    sample = torch.empty(0, dtype=like.dtype, device=like.device)
    shape, strides = [
        tuple([n if type(n) is int else None for n in numbers])
        for numbers in (like.shape, like.stride())
    ]
    return tensor_layout(sample, shape, strides)


def _is_observable(tensor: Any) -> bool:
    """Whether the program can observe a pass that reaches an input without a gradient: such a pass frees
    histories and calls hooks."""
    return bool(not tensor.is_leaf or tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


class Compiled(torch.autograd.Function):
    """Takes all inputs as one tuple, which autograd ignores, and then those that get a gradient."""

    @staticmethod
    def forward(context: Any, region: Gradients, inputs: tuple[Any, ...], *wanted: Any) -> Any:
        context.region = region
        context.set_materialize_grads(False)
        return region.run(context, inputs)

    @staticmethod
    def backward(context: Any, *given: Any) -> Any:
        return differentiate(context, given)


def differentiate(context: Any, given: Sequence[Any], whole: bool = False) -> tuple[Any, ...]:
    """Returns the gradients of a node's inputs, after two Nones for its other arguments.  `given`: the
    gradients of the results; `whole`: whether these are complete sums, with contributions from other
    results."""
    region: Gradients = context.region
    how = region.how
    missing, others = NONE, False
    for n in how.tangents:
        gradient = given[n]
        if gradient is not None:
            plain = type(gradient) is torch.Tensor and gradient.layout is STRIDED
            others |= not plain or has_no_memory(gradient)
        elif not missing:
            missing = frozenset(k for k, n in enumerate(how.tangents) if given[n] is None)
    bare: Sequence[int] = ()
    if len(missing) == len(how.tangents):
        bare = region.only_entry
        if not bare:
            return region.nothing
    # The only list of the saved values, so that the pass can free them.
    if context.retained is not None:
        values = context.retained.saved(region, missing)
    else:
        try:
            values = [*context.saved_tensors] if region.saving.saves else []
            if region.saving.saves_marker:
                values.clear()
            elif how.checks.noticed:
                del values[-len(how.checks.noticed) :]
        except RuntimeError:
            if bare or (values := _still_as_saved(context, missing, whole)) is None:
                raise
        if region.saving.apart:
            for place, value in zip(region.saving.apart, reversed(context.apart), strict=True):
                values.insert(place, value)
        if how.sizes:
            values += context.sizes
    if how.reentrant and not may_checkpoint():
        raise RuntimeError(REENTRANT)
    if region.is_gate and not whole:  # the program does not observe the gradients
        _release_if_last(context, values, missing)
        return region.nothing
    if bare and how.with_functions is None:  # no gradients in, so none out
        _release_if_last(context, values, missing)
        return region.nothing
    others |= bool(bare)
    inside = partial(_inputs, context, values, missing)
    recorded = refused = None
    create_graph = torch.is_grad_enabled()
    # If the pass reads no saved values, its gradients depend only on the given ones.
    if others or (create_graph and (how.with_functions or region.reads(missing, whole))):
        # Op by op: plans read memory of strided tensors, which `others` do not have, and need at least one
        # gradient.
        try:
            gradients = region.op_by_op.gradients
            recorded = gradients(inside(), context.others, given, bare, create_graph, whole)
        except DoubleBackwardError as error:
            if others:
                raise
            refused = str(error), requiring_grad((*values, *context.others.tensors, *given))
        if recorded is not None and others and not keeps_graph():
            release_saved(context)
    if recorded is not None:
        return None, None, *recorded
    del inside
    run: Any
    taken: Any
    specialized_pass = region.passes.last.get((missing, whole))
    if (
        context.memory is not None
        and tensors_where(values, region.saving.pinned_leaves) != context.where
    ):
        _restore_memory(context, values)
    left_out = _unrequested_inputs(context) if region.may_raise else NONE
    if left_out or not tensors_lie(values, region.saved_layouts):
        # A plan computes all gradients, and one that was not requested might raise.  And if `.data =` has
        # replaced the memory of an input, a plan would read the wrong memory.
        part = Partial(how, missing, whole, left_out=left_out)
        run = BackwardPass(how, part, missing, region.op_by_op.module)
        taken = [g for n in how.tangents if (g := given[n]) is not None]
    elif specialized_pass is not None and (taken := specialized_pass.take(given)) is not None:
        run = specialized_pass.run
    else:
        run, taken = region.passes.find(region, missing, whole, values, given)
    last = _release_if_last(context, values, missing)
    gradients = run(region, values, taken, last)
    if refused is not None:
        why, tensors = refused
        gradients = Refused.apply(why, len(tensors), *tensors, *gradients)  # type: ignore[no-untyped-call]
    return None, None, *gradients


def _unrequested_inputs(context: Any) -> frozenset[int]:
    """Returns the entries of `Backward.inputs` that the pass does not visit, because `torch.autograd.grad`
    needs nothing from there."""
    edges = enumerate(context.next_functions)
    return frozenset(k for k, (node, _) in edges if node is not None and not _will_execute(node))


def _will_execute(node: Any) -> bool:
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:  # PyTorch does not answer this for leaves in `torch.autograd.grad`
        return True


def _restore_memory(context: Any, values: list[Any]) -> None:
    """Restores the memory that leaves had when they were saved, if `.data =` has replaced it since."""
    how: Backward = context.region.how
    nodes = how.graph.find_nodes(op="placeholder")
    sizes = sizes_among(how.sizes, values)
    offsets = memoryview(context.where).cast("q")[1::2]
    for place, memory, offset in zip(
        context.region.saving.pinned_leaves, context.memory, offsets, strict=True
    ):
        now, like = values[place], nodes[place].meta["val"]
        if now is None or (now.untyped_storage() is memory and now.storage_offset() == offset):
            continue
        tensor = torch.empty(0, dtype=like.dtype, device=like.device)
        layout = at_sizes((tuple(like.shape), tuple(like.stride())), sizes)
        values[place] = tensor.set_(memory, offset, *layout)


def _release_if_last(context: Any, values: Sequence[Any], missing: frozenset[int]) -> bool:
    """Frees the saved values if this pass is the last one; returns whether it is."""
    if keeps_graph():
        return False
    if missing or context.retained is not None or context.region.saving.stays:
        context.retained = retain_after(context, values, missing)
    if context.retained is None or not context.retained.is_needed:
        context.others = None
    if context.retained is None or not context.retained.tensors:
        context.memory = None
    context.maybe_clear_saved_tensors()
    return True


def node_functions(kind: Any) -> Callable[..., Any]:
    """Returns `kind.apply` without its Python wrapper, which serves function transforms: calls under one run
    as plain Python."""
    # The node calls `backward` without the Python function that looks for a jvp, too.
    kind._backward_cls.apply = kind.backward
    kind._backward_cls._register_hook_dict = register_hooks
    kind._backward_cls.retained = kind._backward_cls.memory = None
    kind._backward_cls.changed = ()
    # `packed` is only used with versions of PyTorch that do not say which saved tensor was changed.
    kind._backward_cls.noted = kind._backward_cls.packed = ()
    return torch._C._FunctionBase.__dict__["apply"].__get__(None, kind)  # type: ignore[no-any-return]


apply = node_functions(Compiled)


def _still_as_saved(context: Any, missing: frozenset[int], whole: bool) -> list[Any] | None:
    """Returns the saved values if only some that this pass does not read were changed in place: plain PyTorch
    does not check these.  None if the change is an error."""
    region: Gradients = context.region
    how = region.how
    left = entries(context, region.saving.n_saved, region.saving.noted, context.noted)
    if left is None:
        return None
    count = len(how.saved_inputs) + len(how.saved_outputs)
    places = [k for k in range(count) if k not in region.saving.apart]
    noticed_entries = left[len(places) :]
    if any(
        c and not n.tangents <= missing
        for n, (_, c) in zip(how.checks.noticed, noticed_entries, strict=True)
    ):
        return None
    changed = {k for k, (_, is_changed) in zip(places, left, strict=False) if is_changed}
    context.changed = changed
    if not changed.isdisjoint(region.reads(missing, whole)):
        return None
    if torch.is_grad_enabled():  # op by op, the results of the pass are recomputed from the inputs
        relied_on = region.op_by_op.relied_on(missing)
        if any(k in relied_on for place, k in enumerate(how.saved_inputs) if place in changed):
            return None
    return [tensor for tensor, _ in left[: len(places)]]


def _inputs(context: Any, saved: Sequence[Any], missing: frozenset[int]) -> list[Any]:
    """Returns the inputs of the forward graph as they were; None for those on which no output depends.  An
    input may have changed if no result of the pass depends on it."""
    region: Gradients = context.region
    inputs: list[Any] = [None] * region.how.n_inputs
    for k, tensor in zip(region.how.saved_inputs, saved, strict=False):
        inputs[k] = tensor
    if context.others is None:
        raise RuntimeError(TWICE)
    relied_on = region.op_by_op.relied_on(missing)
    unwatched = region.saving.unwatched
    if unwatched and any(
        version != inputs[k]._version
        for k, version in zip(unwatched, context.versions, strict=True)
        if k in relied_on
    ):
        raise DoubleBackwardError(
            "an input of a checkpointed region has been modified by an inplace operation: the compiled code around it cannot "
            "be differentiated op by op any more"
        )
    for k, tensor, version in zip(
        region.others, context.others.tensors, context.others.versions, strict=True
    ):
        if version is not None and tensor._version != version and k in relied_on:
            raise DoubleBackwardError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: an input "
                "of compiled code, which a gradient of a gradient needs"
            )
        inputs[k] = tensor
    return inputs


REENTRANT = (
    "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to "
    ".backward(). To resolve this error, you can either set use_reentrant=False, or call .backward() without passing the "
    "`inputs` argument."
)
