"""Handles a call of a jitted function for which it has no entry: captures, compiles, counts, and falls back.

Each jitted function has one `Compiler`, its `on_miss`.  Our own bugs are caught here: with `fullgraph=True`
or FRAMELOOM_VERIFY=1 they are raised, otherwise there is one warning, and the function runs as plain Python
from then on.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from types import FunctionType
from typing import Any

import torch

from frameloom.capture import _capture
from frameloom.capture.driver.capture_call import capture_call, forget_all
from frameloom.capture.guards.dispatch_modes import modes_kept
from frameloom.capture.guards.surroundings import builtins_are_replaced
from frameloom.capture.interpreter.call_rules import has_rule
from frameloom.collector import collector_off
from frameloom.compile_lock import compile_lock, others_may_compile
from frameloom.config import config
from frameloom.debug import Trail, log, notice
from frameloom.errors import (
    NEEDS_GRADIENT,
    BuildError,
    FrameloomError,
    FullGraphError,
    KernelError,
    RecompileError,
)
from frameloom.options import Options
from frameloom.pipeline import compile_graph
from frameloom.report import BreakReport, Explanation, bytecode_text, counts
from frameloom.runtime import _runtime
from frameloom.runtime.build.triton_compiler import prewarm

jitted_functions: weakref.WeakSet[Any] = weakref.WeakSet()
# Seconds to wait for another thread's compile; a backend may be waiting for this thread.
PATIENCE = 60.0
# Changes of frozen tensors, which each make new entries; after so many, tensors are no longer frozen.
CHANGES = 4
# What `torch.compiler.set_stance` takes: stances under which nothing is compiled, and those under which the
# first call runs as plain Python.
NEVER_COMPILES = ("force_eager", "eager_on_recompile")
FIRST_PLAIN = ("eager_then_compile", "aot_eager_then_compile")
REASONS = 10_000  # most that an explanation keeps: under a mode, each call adds one
STACK = 100  # nested calls that the recursion limit must leave room for, or no capture starts


def forget_compiled() -> None:
    """Forgets all compiled code of jitted functions; the next calls compile again."""
    for jitted in list(jitted_functions):
        jitted.clear()
        jitted.enabled = True
    forget_all()


def captured_as(function: FunctionType, called_in_python: Callable[..., Any]) -> Any:
    """Returns the function whose code is captured for `function`. Rules are for calls, so one that has a rule
    is called by a function that `called_in_python` makes."""
    return called_in_python(function) if has_rule(function) else function


def _entry_for(jitted: Any, slots: tuple[Any, ...]) -> Any:
    """Returns the entry that another thread made for this case in the meantime, or None."""
    for entry in reversed(jitted.entries):
        if entry.guards.explain_failure(slots, jitted.__wrapped__) is None:
            return entry
    return None


@cache
def _cached_cast() -> Any:
    """Returns the function that looks up or makes a cast in autocast's cache, or None if this PyTorch has
    none."""
    result = _runtime.cached_cast(torch.zeros((), device="cpu"), 6, 0)
    return None if result is None else _runtime.cached_cast


class Compiler:
    """`compiler(jitted, slots)` returns the Entry for a call, or None for plain Python."""

    def __init__(self, name: str, options: Options) -> None:
        self.options = options
        self._name = name
        self._stack = STACK
        self._changes = 0  # how often frozen tensors changed
        self._ran_first = False  # under a stance that leaves the first call to plain Python
        self.capture_session: Any = None  # see capture/driver/session.py
        self._explanation: Explanation | None = None

    @property
    def explanation(self) -> Explanation:
        """The record of what is compiled.  It starts when this property is first read."""
        if self._explanation is None:
            self._explanation = Explanation(self._name)
        return self._explanation

    @property
    def cached_cast(self) -> Any:
        return _cached_cast()

    @property
    def too_deep(self) -> bool:
        """Whether the recursion limit leaves too little room for a compile here."""
        return _capture.stack_room() < self._stack

    def __call__(self, jitted: Any, slots: tuple[Any, ...]) -> Any:
        if builtins_are_replaced() or self.too_deep or not self._may_compile(jitted, slots):
            return None
        suspended = _capture.hook_suspend(True)
        lock = compile_lock()
        waited = not lock.acquire(blocking=False)
        try:
            if waited and not lock.acquire(timeout=PATIENCE):
                return None
            try:
                if waited and (entry := _entry_for(jitted, slots)) is not None:
                    return entry
                if self.options.freezing:
                    self._drop_stale(jitted)
                if len(jitted.entries) >= config.entries:
                    self._explain_limit(jitted, slots)
                    return None
                with collector_off():
                    return self._compile(jitted, slots)
            finally:
                lock.release()
        finally:
            _capture.hook_suspend(suspended)

    def _may_compile(self, jitted: Any, slots: tuple[Any, ...]) -> bool:
        """Whether `torch.compiler.set_stance` lets this call compile; raises if that is an error."""
        stance = _capture.compile_stance()
        if stance == "fail_on_recompile":
            why = f": {self._why_missed(jitted, slots)}" if jitted.entries else ""
            raise RecompileError(
                f"{jitted.__qualname__} would be compiled, which the stance {stance!r} forbids{why}"
            )
        if stance in FIRST_PLAIN and not self._ran_first:
            self._ran_first = True
            return bool(jitted.entries)
        return stance not in NEVER_COMPILES

    def _drop_stale(self, jitted: Any) -> None:
        """Drops entries whose frozen tensors were written to, and so frees what was computed from these.
        After `CHANGES` such drops, tensors are no longer frozen."""
        entries = jitted.entries
        good = [entry for entry in entries if not entry.guards.is_stale()]
        if len(good) == len(entries):
            return
        jitted.clear()
        for entry in good:
            jitted.add(entry)
        self._changes += 1
        if self._changes >= CHANGES:
            self.options = replace(self.options, freezing=False)
            notice(
                f"freezing:{id(self)}",
                f"{jitted.__qualname__}: parameters changed between calls {CHANGES} times; they are not frozen any more",
            )

    def _compile(self, jitted: Any, slots: tuple[Any, ...]) -> Any:
        prewarm()
        name = jitted.__qualname__
        why = None
        if jitted.entries:
            why = self._why_missed(jitted, slots) if "recompiles" in config.logs else ""
        trail = Trail(name)
        try:
            with modes_kept(), trail.stage("capture"):
                outcome = capture_call(jitted, slots, self, trail)
        except BuildError as error:
            if config.verify and isinstance(error, KernelError):
                raise
            if isinstance(error, KernelError) and self._retreat(name, error):
                return self._compile(jitted, slots)
            notice(
                "build",
                f"no kernels can be built, so jitted functions run as plain Python: {error}",
            )
            return self._give_up(jitted, f"build failed: {error}")
        except FrameloomError:
            raise
        except RecursionError:
            # Try again only when a call has more room on the stack.
            room, limit = _capture.stack_room(), sys.getrecursionlimit()
            self._stack = max(self._stack, room + 1)
            if 2 * room > limit:
                notice(
                    f"deep:{name}",
                    f"{name} runs as plain Python: compiling it took more calls inside of each other than the recursion limit "
                    f"({limit}) leaves. sys.setrecursionlimit() raises it",
                )
            return None
        except Exception as error:
            if config.verify:
                raise
            if self._retreat(name, error):
                return self._compile(jitted, slots)
            if self.options.fullgraph:
                raise
            notice(
                f"bug:{name}",
                f"{name} runs as plain Python: compiling it failed inside Frameloom with "
                f"{type(error).__name__}: {error}. Please report it (FRAMELOOM_VERIFY=1 shows the traceback).",
            )
            return self._give_up(jitted, f"internal error: {type(error).__name__}: {error}")
        is_new_length = outcome is not None and outcome.kind == "plain" and outcome.varies
        if why is not None and outcome is not None and not is_new_length:
            counts["recompiles"] += 1
            log("recompiles", f"{name}: {why}")
        self._dump_entry(outcome, name, trail)
        trail.close()
        if (explanation := self._explanation) is not None:
            for stage, seconds in trail.seconds.items():
                explanation.seconds[stage] = explanation.seconds.get(stage, 0.0) + seconds
        return outcome

    def _retreat(self, name: str, error: Exception) -> bool:
        """Gives up symbolic sizes; returns whether that changes something, so that the compile should be
        tried again."""
        session = self.capture_session
        if session is None or not session.dynamic_policy.give_up_sizes():
            return False
        log("recompiles", f"{name}: shapes have entries of their own from now on: {error!r}")
        return True

    def _dump_entry(self, entry: Any, name: str, trail: Trail) -> None:
        if entry is None or not (config.debug or "bytecode" in config.logs):
            return
        if config.debug:
            trail.dump("guards.txt", "\n".join(entry.guards.texts()))
        text = bytecode_text(entry)
        trail.dump("bytecode.txt", text)
        log("bytecode", f"{name}\n{text}")

    def _give_up(self, jitted: Any, reason: str) -> None:
        self.add_plain(reason)
        jitted.enabled = False

    # ---- called by the capture

    def compile_graph(self, captured: Any, trail: Trail) -> Any:
        """Compiles one captured graph; returns a function of its inputs."""
        with others_may_compile() if callable(self.options.backend) else nullcontext():
            compiled, report = compile_graph(captured, self.options, trail)
        counts["graphs"] += 1
        if self._explanation is not None:
            self._explanation.graphs.append(report)
        return compiled

    def compile_part(self, captured: Any, trail: Trail) -> Any:
        """Compiles a graph that another graph calls."""
        return compile_graph(captured, self.options, trail)[0]

    def add_break(self, report: BreakReport) -> None:
        """Records a graph break; under fullgraph=True it is an error."""
        if self.options.fullgraph:
            raise FullGraphError(report.text)
        counts["breaks"] += 1
        if self._explanation is not None:
            self._explanation.breaks.append(report)
        log("breaks", report.text)

    def add_plain(self, reason: str) -> None:
        """Records that a case is left to plain Python."""
        counts["plain"] += 1
        if f": {NEEDS_GRADIENT}" in f": {reason}":
            notice(
                "gradient",
                f"{reason}; such calls run as plain Python for now (use torch.no_grad() where none is needed)",
            )
        if self._explanation is not None and len(self._explanation.plain) < REASONS:
            self._explanation.plain.append(reason)
        log("breaks", f"plain: {reason}")

    def add_guards(self, guards: Any) -> None:
        """Records the guards of a new entry."""
        if self._explanation is not None:
            self._explanation.guards.extend(guards.texts())
        if "guards" in config.logs:
            log("guards", "\n".join(guards.texts()))

    # ---- messages

    def _why_missed(self, jitted: Any, slots: tuple[Any, ...]) -> str:
        entries = jitted.entries
        # An entry with symbolic sizes, or else the newest.
        several = (e for e in entries if e.varies and e.kind != "plain")
        guards = next(several, entries[-1]).guards
        return guards.explain_failure(slots, jitted.__wrapped__) or "guards pass now"

    def _explain_limit(self, jitted: Any, slots: tuple[Any, ...]) -> None:
        notice(
            f"limit:{id(jitted)}",
            f"{jitted.__qualname__} has {len(jitted.entries)} compiled entries (the limit, FRAMELOOM_ENTRIES); "
            f"new cases run plainly. The newest case differs in: {self._why_missed(jitted, slots)}",
            jitted,
        )
