"""Captures one call: interprets it, compiles the graph, and makes the entry that later calls run.

In: a jitted function that was called without a matching entry, its bound arguments, and the compiler that
turns graphs into code. Out: an `Entry` (added to the function), or None if this case runs as plain Python.
The interpreter is in `tracer.py` and `frame.py`; `resume/rewrite.py` writes the new code.
"""

from __future__ import annotations

import weakref
from types import FunctionType
from typing import Any

import torch

from frameloom.capture import _capture
from frameloom.capture.autograd.backward_python import check_deferred_code
from frameloom.capture.autograd.partition import UNNOTICED
from frameloom.capture.bytecode.instruction import names_in, slot_names
from frameloom.capture.driver.session import Compiler, forget_sessions, session_of
from frameloom.capture.guards.class_lookup import noting
from frameloom.capture.guards.surroundings import obstacle, watch
from frameloom.capture.interpreter.frame import Broken, Frame, broken_at
from frameloom.capture.interpreter.tracer import Tracer
from frameloom.capture.library import all_rules
from frameloom.capture.resume import rewrite
from frameloom.capture.resume.resume_function import ResumeSpec, enter, spec_of
from frameloom.capture.symbolic.container_lengths import NewLength
from frameloom.capture.symbolic.dynamic_policy import NoElements, Related, ReplacedHint
from frameloom.capture.symbolic.size_guards import guard_sizes
from frameloom.capture.tensors.cast_cache import KeepsCasts
from frameloom.capture.values import policy
from frameloom.capture.values.base import NotConstant, Raised, Value, realized
from frameloom.capture.values.containers.iterator import SequenceIterator
from frameloom.debug import log
from frameloom.errors import NEEDS_GRADIENT, Avoid, Break, FullGraphError, Skip

MAX_ATTEMPTS = 20
OURS = (Broken, Break, Skip, Raised, NotConstant)
MAX_POSITIONS = 2  # entries that depend on an iterator's position, before one serves all positions
UNSUPPORTED_FLAGS = 0x20 | 0x80 | 0x200  # generators, coroutines, asynchronous generators


def capture_call(jitted: Any, slots: tuple[Any, ...], compiler: Compiler, trail: Any) -> Any:
    """Captures the call and returns its Entry (already added), or None for plain Python."""
    function: FunctionType = jitted.__wrapped__
    if (reason := obstacle()) is not None:
        compiler.add_plain(f"{function.__qualname__}: {reason}")
        return None
    session_of(compiler).capturing = weakref.ref(jitted)
    try:
        _check(function)
        follow = len(jitted.entries) < MAX_POSITIONS
        entry = _capture_with_retries(function, slots, compiler, trail, follow)
        policy = session_of(compiler).dynamic_policy
        if policy.replaces_ones and entry.guards.explain_failure(slots, function) is not None:
            # The code depends on which sizes are 1.
            policy.small_apart = True
            jitted.add(entry)
            entry = _capture_with_retries(function, slots, compiler, trail, follow)
    except Skip as skip:
        _leave_to_python(compiler, skip.reason)
        jitted.enabled = False
        jitted.look_inside = True
        return None
    jitted.add(entry)
    return entry


def forget_all() -> None:
    """Forgets every resume function."""
    forget_sessions()


def _leave_to_python(compiler: Compiler, reason: str) -> None:
    """Reports that code which could be compiled runs as plain Python; under fullgraph=True it is an error."""
    if compiler.options.fullgraph:
        raise FullGraphError(f"{reason}. So it runs as plain Python, which fullgraph=True forbids")
    compiler.add_plain(reason)


def _check(function: FunctionType) -> None:
    code = function.__code__
    if code.co_flags & UNSUPPORTED_FLAGS:
        raise Skip(f"{function.__qualname__} is a generator or coroutine")
    if not code.co_flags & 1:
        raise Skip(f"{function.__qualname__} is not an optimized function")
    if (name := policy.may_inspect_frame(code)) is not None:
        raise Skip(f"{function.__qualname__} may look at its own frame ({name})")


def _capture_with_retries(
    function: FunctionType,
    slots: tuple[Any, ...],
    compiler: Compiler,
    trail: Any,
    follows_iterators: bool,
) -> Any:
    session = session_of(compiler)
    session.dynamic_policy.from_the_start = compiler.options.dynamic is True
    session.dynamic_policy.lengths.may_break = not compiler.options.fullgraph
    has_failed = False
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            log("recompiles", f"{function.__qualname__}: attempt {attempt + 1} to capture it")
        session.dynamic_policy.begin()
        capture = Capture(function, slots, compiler, trail)
        capture.has_failed = has_failed
        capture.tracer.options.follows_iterators = follows_iterators
        capture.tracer.options.follows_numbers = (
            compiler.options.dynamic is not False and not session.per_code
        )
        capture.tracer.options.follows_elements = not session.per_code
        capture.tracer.options.follows_lengths = compiler.options.dynamic is not False
        capture.tracer.options.may_speculate = not (
            session.per_code or session.forced or compiler.options.fullgraph
        )
        try:
            return capture.run()
        except Avoid as avoid:
            session.avoid(*avoid.site)
        except BreaksRepeatedly:
            follows_iterators = False
        except FailsWhenCompiling:
            session.reports_compiling, has_failed = False, True
        except Related:
            pass
        except KeepsCasts as keeps:
            session.keeps_casts, session.opens_autocast = True, session.opens_autocast or keeps.opens  # fmt: skip
        except ReplacedHint:
            session.dynamic_policy.small_apart = True
        finally:
            capture.tracer.release()
    raise Skip(f"{function.__qualname__}: no place to break was found")


FAILURES = ("op_error", "exception")


class BreaksRepeatedly(Exception):
    """A loop over an iterator from before the call breaks in a later round. It probably breaks in each round,
    so one entry should serve all."""


class FailsWhenCompiling(Exception):
    """The program asks whether it is being compiled, and fails after that: it is captured again with the
    answer no."""


def _stacks(broken: Broken) -> list[Value]:
    return [realized(value) for state in broken.states for value in state.stack]


def _is_followed(value: Value) -> bool:
    return isinstance(value, SequenceIterator) and value.origin is not None and value.position > value.start  # fmt: skip


class Capture:
    """One attempt to capture a call."""

    def __init__(
        self, function: FunctionType, slots: tuple[Any, ...], compiler: Compiler, trail: Any
    ) -> None:
        self.function = function
        self.slots = slots
        self.compiler = compiler
        self.trail = trail
        self.spec: ResumeSpec | None = spec_of(function)
        self.session = session_of(compiler)
        self.has_failed = False  # whether it failed after the answer that it is being compiled
        self.tracer = Tracer(function, self.session)
        self.tracer.recorder.history.budget = compiler.options.memory_budget
        # Freezing, which works without gradients, relies on weights that do not change.
        if not compiler.options.freezing or torch.is_grad_enabled():
            self.tracer.recorder.casts.begin(self.session, getattr(compiler, "cached_cast", None))
        watch(self.tracer)

    def run(self) -> Any:
        # Properties of tensors are read past the `__torch_function__` of their classes.
        with noting(self.tracer.guards.lookups), torch._C.DisableTorchFunctionSubclass():
            return self._run()

    def _run(self) -> Any:
        before = _capture.lend_calls(0)
        _capture.lend_calls(before + 5000)
        try:
            end = self._interpret()
            check_deferred_code(self.tracer, end)
        finally:
            self.tracer.settings.leave()
            _capture.lend_calls(before)
        try:
            if isinstance(end, Skip):
                raise end
            return self._broken(end) if isinstance(end, Broken) else self._returned(end)
        except (NewLength, NoElements) as this_call:
            if isinstance(this_call, NewLength):
                self.tracer.guards.add(this_call.origin, "new_length", this_call.lengths)
            entry = self._plain(this_call.reason)
            entry.varies = True
            return entry
        except Skip as skip:
            return self._plain(skip.reason, compilable=True)
        finally:
            if isinstance(end, Exception):
                _forget_frames(end)

    def _interpret(self) -> Value | Broken | Skip:
        t = self.tracer
        try:
            if self.spec is not None:
                return enter(t, self.spec, self.slots)
            return self._root_frame().run()
        except Raised as raised:
            return broken_at(t, raised.point, Break("exception", raised.value.describe()))
        except (Broken, Skip) as ended:
            return ended

    def _root_frame(self) -> Frame:
        t, function = self.tracer, self.function
        code = function.__code__
        if self.session.per_code:
            t.guards.add(t.roots.globals, "is", function.__globals__)
        arguments: dict[str, Value] = {}
        for position, (name, value) in enumerate(zip(slot_names(code), self.slots, strict=False)):
            arguments[name] = t.wrap(value, t.roots.argument(position, name))
        closure = [
            t.cell(cell, None, t.roots.cell(position, name), slot=name)
            for position, (name, cell) in enumerate(
                zip(code.co_freevars, function.__closure__ or (), strict=True)
            )
        ]
        return Frame(t, code, t.globals_of(function, None), arguments, closure, root=True)

    # --- the end of a capture

    def _returned(self, result: Value) -> Any:
        if self.tracer.recorder.n_ops == 0 and not self.session.forced:
            return self._plain("no tensor operations")
        self._count_ops()
        return rewrite.entry_for_return(self, result)

    def _broken(self, broken: Broken) -> Any:
        if self.tracer.options.follows_iterators and any(map(_is_followed, _stacks(broken))):
            raise BreaksRepeatedly
        if broken.cause.kind in FAILURES and self.spec is None:
            if self.tracer.recorder.is_given_nothing():
                return self._plain("a call on a tensor without elements, which fails")
            if self.tracer.asked_compiling:
                raise FailsWhenCompiling
            if self.has_failed:  # it fails with either answer
                self.session.reports_compiling = True
        if broken.cause.kind in FAILURES and self.session.dynamic_policy.replaces_ones:
            raise ReplacedHint
        if broken.cause.kind == "gradient":
            return self._plain(NEEDS_GRADIENT, compilable=True)
        self._count_ops()
        behind = [names_in(state.code) for state in broken.states]
        self.tracer.recorder.history.writes_unnoticed = not UNNOTICED.isdisjoint(
            frozenset().union(*behind)
        )
        return rewrite.entry_for_break(self, broken)

    def _count_ops(self) -> None:
        n_ops = self.tracer.recorder.n_ops
        self.session.dynamic_policy.lengths.count(self.function.__code__, n_ops)

    def _plain(self, reason: str, compilable: bool = False) -> Any:
        """Returns an entry of plain Python.  `compilable`: whether compiled code is what such a call should
        run, and not that it has no work for it, or is one of a kind."""
        guard_sizes(self.tracer)
        built = self.tracer.guards.build()
        if self.spec is None:  # code behind a break is not a case of its own
            report = _leave_to_python if compilable else type(self.compiler).add_plain
            report(self.compiler, f"{self.function.__qualname__}: {reason}")
        self.compiler.add_guards(built.guards)
        return _capture.Entry.plain(built.guards, reason)


def _forget_frames(error: BaseException | None) -> None:
    """Clears the frames of our own exceptions. They hold the exception and all that was captured, so the
    program's objects would stay alive."""
    while error is not None:
        error.__traceback__ = None
        before = error.__context__
        error = error.__cause__ or (before if isinstance(before, OURS) else None)


assert all_rules.MODULES
