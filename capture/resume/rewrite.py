"""Makes an entry of a finished capture: calls the graph, replays effects, and returns or leaves.

In: a `Capture` and the result of the interpreted function, or the states of the frames at the break.
Out: an `Entry`.

New code of the captured function after a break at instruction i:

  set-up of the frame | graph call | effects | stack and variables | i | leave, to the resume function of i
  and, if an exception handler covers i, a copy of the whole body, for that handler to run in

A break inside inlined calls puts a call of a *break function* in place of i: the inlined function's code,
entered in the same way, which returns its state as a `Live` tuple (`resume/trampoline.py`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from frameloom.capture import _capture
from frameloom.capture.autograd.detached_results import detach_some, detached
from frameloom.capture.autograd.finish import finish, remake_histories
from frameloom.capture.autograd.freed_history import FreedOutputs, without_histories
from frameloom.capture.autograd.inference_results import Modes, modes_of, run_in_modes
from frameloom.capture.bytecode.emitter import CodeBuilder
from frameloom.capture.bytecode.instruction import argument_names, assemble, decode
from frameloom.capture.graph_passes.freezing import frozen
from frameloom.capture.guards.surroundings import watch_autograd
from frameloom.capture.interpreter import break_catalogue
from frameloom.capture.recording.branches import calls_in
from frameloom.capture.recording.captured_graph import without_examples
from frameloom.capture.recording.unbacked_sizes import assumed, avoid_unbacked, checks_sizes
from frameloom.capture.resume.break_exit import ExitWriter, frame_spec
from frameloom.capture.resume.forbidden_breaks import is_forbidden
from frameloom.capture.resume.lifetime import Lifetimes
from frameloom.capture.resume.object_aliases import (
    apart_in_memory,
    inputs_followed,
    tell_objects_apart,
)
from frameloom.capture.resume.reconstruct import Rebuilder, reachable, tensors_in
from frameloom.capture.resume.resume_function import STATE, FrameWriter
from frameloom.capture.resume.shown_variables import choose_shown
from frameloom.capture.speculation.assume import (
    check_that_restart_is_possible,
    verified,
)
from frameloom.capture.speculation.branch_speculation import forgetting
from frameloom.capture.speculation.hoisting import ArrayOrigin, with_arrays
from frameloom.capture.symbolic.dynamic_policy import Related, ReplacedHint
from frameloom.capture.symbolic.size_guards import guard_sizes
from frameloom.capture.tensors.cast_cache import made_casts, watching
from frameloom.capture.tensors.leaves import (
    check_that_leaves_stay_inside,
    check_views_of_later_leaves,
    leaves_or,
    turning_on,
)
from frameloom.capture.values.base import NULL, Value, realized
from frameloom.capture.values.const import ConstValue, is_nan
from frameloom.capture.values.containers.container import ListValue, TupleValue
from frameloom.capture.values.containers.dictionary import DictValue
from frameloom.capture.values.function import CellValue
from frameloom.capture.values.numbers.symbolic import is_symbolic
from frameloom.capture.values.subclass import is_of_subclass, with_functions_off
from frameloom.capture.values.tensor import TensorValue
from frameloom.config import config
from frameloom.errors import NEEDS_GRADIENT, Avoid, Break, FullGraphError, Skip

if TYPE_CHECKING:
    from frameloom.capture.driver.capture_call import Capture
    from frameloom.capture.interpreter.frame import Broken, FrameState
    from frameloom.capture.interpreter.tracer import Tracer
    from frameloom.capture.recording.captured_graph import CapturedGraph


class CompiledRegion:
    """The captured region: its compiled graph, with guards and pending effects."""

    def __init__(
        self, capture: Capture, needed: list[Value], unseen: set[int], whole: bool
    ) -> None:
        self.capture = capture
        t = self.tracer = capture.tracer
        self.cast = t.recorder.casts.own(t, whole)
        self.made_casts = made_casts(t.recorder)
        self.effects = t.pending(unseen)
        self.needed = [*needed, *(turn.block for turn in t.settings.turns)]
        for effect in self.effects:
            self.needed += effect.values
            if effect.target.native is not None:
                effect.target.check_rebuild()
        alive = set()
        for value in reachable(self.needed):
            alive.add(id(value))
            if value.origin is None:
                value.check_rebuild()
        for generator in t.generators:
            if generator.would_clean_up and id(generator) not in alive:
                raise Skip(f"{generator.describe()} is dropped, and cleans up when it is")
        self.outputs = tensors_in(self.needed)
        check_that_leaves_stay_inside(t, self.outputs)
        self.detached = detached([v.fake for v in self.outputs], t.backward.last_backward > 0)
        self.modes: Modes | None = None
        self.freed = FreedOutputs(t, self.outputs, not capture.compiler.options.fullgraph)
        self.graph: CapturedGraph | None = None
        self.compiled: Any = None
        self.by_identity = (
            False  # whether the break is where the program compares constants by identity
        )

    def compile(self) -> None:
        t, capture = self.tracer, self.capture
        apart: list[Any] = []
        if t.recorder.n_ops or self.outputs or t.recorder.numbers.checked or assumed(t.recorder):
            try:
                remake_histories(t.recorder, [v.fake for v in self.outputs])
                self.modes = modes_of(self.outputs)
                followed = inputs_followed(t.recorder)
                self.graph = finish(
                    t.recorder, without_histories(t, self.outputs, self.freed.which)
                )
            except Break as cause:
                avoid_unbacked(t.recorder)
                raise leaves_or(t, Skip(f"{NEEDS_GRADIENT}: {cause}")) from cause
            if self.graph.backward is not None:
                watch_autograd(t)
            if t.recorder.history.turned_on:
                try:  # its views then require gradients, even if the graph does not read them
                    apart = apart_in_memory((key, real) for key, real, _ in t.recorder.inputs)
                except Skip as cause:
                    raise leaves_or(t, cause) from cause
            elif self.graph.mutated:
                given = dict(zip(self.graph.inputs, self.graph.examples, strict=True))
                apart = apart_in_memory((followed | given).items())
            if capture.compiler.options.freezing and self.graph.backward is None:
                self.graph = frozen(t, self.graph)
            ours = getattr(capture.compiler.options, "backend", None) is None
            restarts = check_that_restart_is_possible(t, self.graph, ours)
            self.graph = replace(self.graph, restarts=restarts)
            checks_sizes(t, self.graph, ours)
            shape_env = t.recorder.shape_env
            if t.session.dynamic_policy.relate(shape_env):
                raise Related
            if t.session.dynamic_policy.replaces_ones and not shape_env.hold(
                lambda s: s.source.actual
            ):
                raise ReplacedHint
            shape_env.relaxed = True
            for call in calls_in(self.graph.graph) if ours else ():
                for part in call.parts:
                    part.compile(partial(capture.compiler.compile_part, trail=capture.trail))
            self.compiled = capture.compiler.compile_graph(self.graph, capture.trail)
            sized = checks_sizes(t, self.graph, ours)
            if restarts and config.verify and not sized and not self.graph.mutated:
                recorded = without_examples(self.graph)
                self.compiled = verified(self.compiled, lambda *args: recorded.gm.forward(*args))
            if t.speculation.speculated:
                self.compiled = forgetting(t, self.compiled)
            self.compiled = watching(t, self.graph, self.compiled, self.cast)
        if t.arrays:
            if self.graph is None:
                raise Avoid(t.arrays[0].site)
            self.compiled = with_arrays(self.compiled, t.arrays, self.graph.inputs)
        self.compiled = turning_on(t, self.graph, self.compiled)
        if self.graph is not None and any(map(is_of_subclass, self.graph.examples)):
            self.compiled = with_functions_off(self.compiled)
        guard_sizes(t)
        tell_objects_apart(t)
        self.built = t.guards.build(apart)

    def entry(self, function: FunctionType | None, recipe: Any = None) -> Any:
        built = self.built
        if function is None:
            for origin in self.graph.inputs:
                built.guards.slot(built.node(origin))
            entry = _capture.Entry.direct(built.guards, self.compiled, recipe)
        else:
            entry = _capture.Entry.code(built.guards, function)
        entry.varies = not all(s.unbacked for s in self.tracer.recorder.shape_env.symbols)
        self.capture.compiler.add_guards(built.guards)
        return entry


# --- the whole function was captured


def entry_for_return(capture: Capture, result: Value) -> Any:
    region = CompiledRegion(capture, [result], _unseen(capture, result), capture.spec is None)
    region.compile()
    if (
        not region.effects
        and not region.detached
        and not region.freed.which
        and region.modes is None
        and not capture.tracer.draws
        and not capture.tracer.arrays
        and not capture.tracer.settings.differ
        and region.graph is not None
        and not region.made_casts
    ):
        recipe = _recipe(realized(result), region, set())
        if recipe is not None:
            return region.entry(None, recipe)
    root = RootWriter(capture)
    rebuilder = root.run_region(region)
    rebuilder.load(result)
    root.fill_cells(rebuilder, region)
    root.code.emit("RETURN_VALUE")
    return region.entry(root.finish())


def _unseen(capture: Capture, result: Value) -> set[int]:
    """Returns the ids of objects whose changes need not be written back. The dictionary of a **kwargs
    parameter belongs to this call: after a return, its changes are visible only if the result or a written
    object leads to it."""
    code = capture.function.__code__
    if not code.co_flags & 8 or capture.spec is not None:
        return set()
    t = capture.tracer
    own = t.known(capture.slots[len(argument_names(code)) - 1])
    if own is None or id(own) not in t.changed:
        return set()
    written = [part for value in t.changed.values() if value is not own for part in value.parts()]
    if own in reachable([result, *written]):
        return set()
    return {id(own)}


def _recipe(value: Value, region: CompiledRegion, seen: set[int]) -> Any:
    """Returns the result in the form that `Entry.direct` builds; None if only code can build it."""
    if isinstance(value, TensorValue):
        if value.is_output and not value.attributes:
            return ("out", next(n for n, own in enumerate(region.outputs) if own is value))
        for position, origin in enumerate(region.graph.inputs):
            if origin is value.origin:
                return ("slot", position)
        return None
    if is_symbolic(value):
        return None
    if isinstance(value, ConstValue) and not (is_nan(value) and value.origin is not None):
        return ("const", value.real)
    if value.origin is not None or id(value) in seen:
        return None
    seen.add(id(value))
    if isinstance(value, TupleValue) and value.cls is tuple:
        return _several("tuple", value.items, region, seen)
    if isinstance(value, ListValue) and value.type() is list:
        return _several("list", value.items, region, seen)
    if type(value) is DictValue and value.cls is dict:
        keys = [key for key, _ in value.written.values()]
        if not all(isinstance(key, ConstValue) for key in keys):
            return None
        parts = _several("tuple", [item for _, item in value.written.values()], region, seen)
        return None if parts is None else ("dict", tuple(key.real for key in keys), parts[1])
    return None


def _several(kind: str, values: list[Value], region: CompiledRegion, seen: set[int]) -> Any:
    recipes = [_recipe(realized(value), region, seen) for value in values]
    return None if None in recipes else (kind, tuple(recipes))


# --- a break ended the capture


def entry_for_break(capture: Capture, broken: Broken) -> Any:
    states = broken.states
    choose_shown(states, broken.raises)
    lifetimes = Lifetimes(capture.tracer, states)
    specs = [frame_spec(lifetimes, state) for state in states]
    needed = [
        value
        for state, spec in zip(states, specs, strict=True)
        for value in _state_values(state, spec)
    ]
    region = CompiledRegion(capture, needed, set(), False)
    check_views_of_later_leaves(region.outputs, states)
    region.by_identity = broken.cause.kind == "identity"
    if not continues_in_loop(capture, states):
        report = break_catalogue.report(broken.cause, broken.where)
        if is_forbidden(capture.tracer, states):
            raise FullGraphError(report.text)
        capture.compiler.add_break(report)
    region.compile()
    root = RootWriter(capture)
    try:
        root.leave(region, states)
    except Break as cause:
        raise Skip(f"what is live at a break cannot be rebuilt ({cause.detail})") from None
    return region.entry(root.finish())


def continues_in_loop(capture: Capture, states: list[FrameState]) -> bool:
    """Whether this break belongs to an earlier one: behind a break in a loop, plain Python takes the next
    item from the iterator."""
    return capture.spec is not None and states[-1].at.op == "FOR_ITER"


def _state_values(state: FrameState, spec: Any) -> list[Value]:
    """Returns the values that a resumed frame gets: variables, then the stack."""
    return [
        *(state.slots[name] for name in spec.slots),
        *(value for value in state.stack if value is not NULL),
    ]


class RootWriter:
    """New code for the captured function itself, or for a resume function; it has their arguments."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.function = capture.function
        self.tracer: Tracer = capture.tracer
        if capture.spec is not None:
            self.writer = FrameWriter(
                capture.spec.code, capture.spec.parameters, capture.spec.cells
            )
            self.writer.enter()
        else:
            self.writer = WholeFunctionWriter(self.function.__code__)
        self.code = self.writer.code
        line = self.writer.original.co_firstlineno
        self.code.place((line, line, None, None))

    def run_region(self, region: CompiledRegion) -> Rebuilder:
        """Writes code that calls the graph, replays the effects and enters the grad modes. What is needed
        later is loaded before anything changes."""
        code = self.code
        r = Rebuilder(code, region.outputs)
        r.by_identity = region.by_identity
        read = region.graph.inputs if region.graph is not None else ()
        for origin in region.made_casts:
            if origin not in read:
                r.load_origin(origin)
                code.emit("POP_TOP")
        if region.graph is not None:
            if region.modes is not None:
                code.start_call(run_in_modes)
                code.load_const(region.compiled)
                code.load_const(region.modes)
            else:
                code.start_call(region.compiled)
            given = [o for o in region.graph.inputs if not isinstance(o, ArrayOrigin)]
            for origin in given:
                r.load_origin(origin)
            code.call(len(given) + 2 * (region.modes is not None))
            if region.detached:
                code.call_const_after(detach_some, (region.detached,))
            if region.freed.which:
                region.freed.emit(r)
            r.output_name = code.temporary()
            code.store(r.output_name)
        for draw in self.tracer.draws:
            r.load(draw)
            code.emit("POP_TOP")
        if self.capture.spec is not None:  # after the graph, since the graph may bail out
            code.clear_and_delete(STATE)
        if region.effects:
            r.preload(region.needed)
        for effect in region.effects:
            r.do(effect.function, effect.target, *effect.operands)
        self.tracer.settings.emit(code, r)
        return r

    def leave(self, region: CompiledRegion, states: list[FrameState]) -> None:
        self.code.place(states[0].at.positions)
        r = self.run_region(region)
        code, exit_writer = self.code, ExitWriter(self.capture, states)
        for value in states[0].stack:
            r.load(value)
        if len(states) > 1:
            exit_writer.load_break_function(code, 1)
            for state, spec in reversed(list(zip(states[1:], exit_writer.specs[1:], strict=True))):
                r.load_all(_state_values(state, spec))
        self._store_variables(r, states[0], exit_writer.specs[0].slots)
        for name in code.temporaries:
            code.emit("DELETE_FAST", name)
        self._drop_variables(states[0], exit_writer.specs[0].slots)
        exit_writer.finish_frame(self.writer, 0, driving=self.capture.spec is None)

    def _store_variables(self, r: Rebuilder, state: FrameState, names: tuple[str, ...]) -> None:
        """Writes code that stores the variables: it first pushes all values, then stores them, since a value
        may be loaded from a variable."""
        stores: list[tuple[str, str]] = []
        own_cells = self._own_cells()
        for name in names:
            value = state.slots[name]
            if isinstance(value, CellValue) and value.slot == name:
                if name in own_cells:  # the content of a free variable is an effect
                    stores += self._cell_store(r, value)
            elif not self._in_place(value, name):
                r.load(value)
                stores.append(("STORE_FAST", name))
        for (
            value
        ) in state.stack:  # the cell of a variable that a comprehension hides, still in its slot
            if isinstance(value, CellValue) and value.slot in own_cells:
                stores += self._cell_store(r, value)
        for op, name in reversed(stores):
            self.code.emit(op, name)

    def _drop_variables(self, state: FrameState, kept: tuple[str, ...]) -> None:
        """Writes code that deletes variables, since the frame lives until the function ends: it must not hold
        objects that the program has dropped, nor tensors that are not read again."""
        for name in self.writer.incoming():
            if name in kept:
                continue
            value = state.slots.get(name)
            if (
                self.capture.spec is not None
                or value is None
                or isinstance(realized(value), TensorValue)
                or not self._in_place(value, name)
            ):
                self.code.emit("DELETE_FAST", name)

    def fill_cells(self, r: Rebuilder, region: CompiledRegion) -> None:
        """Writes code that fills the cells that live longer than the function, in its closures."""
        stores: list[tuple[str, str]] = []
        for value in reachable(region.needed):
            if isinstance(value, CellValue) and value.slot in self._own_cells():
                stores += self._cell_store(r, value)
        for op, name in reversed(stores):
            self.code.emit(op, name)

    def _own_cells(self) -> frozenset[str]:
        if self.capture.spec is not None:
            return frozenset()
        code = self.function.__code__
        return frozenset(code.co_cellvars) - {*code.co_freevars}

    def _cell_store(self, r: Rebuilder, cell: CellValue) -> list[tuple[str, str]]:
        """Pushes the content of a cell of the function's own frame, if any; returns the instructions that
        store or delete it."""
        assert cell.slot is not None
        if cell.content is not None:
            r.load(cell.content)
            return [("STORE_DEREF", cell.slot)]
        is_argument = cell.slot in argument_names(self.function.__code__)
        return [("DELETE_DEREF", cell.slot)] if is_argument else []

    def _in_place(self, value: Value, name: str) -> bool:
        origin = value.origin
        return origin is not None and origin.kind == "arg" and origin.key == name

    def finish(self) -> FunctionType:
        old, code = self.function, self.writer.finish()
        new = FunctionType(code, old.__globals__, old.__name__, old.__defaults__, old.__closure__)
        new.__kwdefaults__ = old.__kwdefaults__
        new.__qualname__ = old.__qualname__
        return new


class WholeFunctionWriter(FrameWriter):
    """Writes code with the arguments and free variables of the original."""

    keeps_layout = True

    def __init__(self, original: CodeType) -> None:
        self.original = original
        self.parameters = []
        self.preludes = {}
        arguments = {
            name: "LOAD_DEREF" if name in original.co_cellvars else "LOAD_FAST"
            for name in original.co_varnames
        }
        self.code = CodeBuilder(arguments)
        for instr in decode(original):
            self.code.instrs.append(instr.copy())
            if instr.op == "RESUME":
                break

    def incoming(self) -> list[str]:
        return [
            name for name in argument_names(self.original) if name not in self.original.co_cellvars
        ]

    def finish(self) -> CodeType:
        code = self.original
        return assemble(
            self.code.instrs,
            code,
            varnames=[*code.co_varnames, *self.code.temporaries],
            cellvars=code.co_cellvars,
            freevars=code.co_freevars,
            stacksize=code.co_stacksize + self.code.max_depth + 8,
        )
