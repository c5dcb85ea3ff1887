"""What happens when a jitted function meets a case it has no entry for: capture, compile, count, and fall back.

One `Compiler` per jitted function: it is the function's `on_miss`.  Our own bugs end here: raised with `fullgraph=True` and
FRAMELOOM_VERIFY=1, otherwise one warning, and the function runs plainly from then on.
"""

from __future__ import annotations

import sys
import weakref
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from frameloom.capture import _capture
from frameloom.capture.guards.surroundings import builtins_are_replaced
from frameloom.collector import collector_off
from frameloom.compile_lock import compile_lock, others_may_compile
from frameloom.config import config
from frameloom.debug import Trail, forget_notices, log, notice
from frameloom.errors import (
    BuildError,
    FrameloomError,
    FullGraphError,
    KernelError,
    failures,
    forget_failures,
)
from frameloom.options import Options
from frameloom.report import BreakReport, Explanation, bytecode_text, verified
from frameloom.runtime import _runtime

compilers: weakref.WeakKeyDictionary[Any, Compiler] = weakref.WeakKeyDictionary()
_counts = {"graphs": 0, "breaks": 0, "recompiles": 0, "plain": 0}
PATIENCE = 60.0  # seconds to wait for another thread's compile; a backend may itself be waiting for this thread
CHANGES = 4  # of frozen tensors, that make new entries; from then on they are not frozen
REASONS = 10_000  # that an explanation keeps: under a mode, each call has one
STACK = 100  # calls that the recursion limit must leave room for: with less, a capture is not even begun


def unsupported_reason() -> str | None:
    """Why this interpreter cannot be compiled for, or None."""
    return _capture.supported()


def load_compiler() -> None:
    """Import what a compile needs, so that the first call of a jitted function does not pay for it."""
    from frameloom.runtime.build.triton_compiler import prewarm

    prewarm()  # first: it goes on beside what follows
    with collector_off():
        import frameloom.capture.driver.capture_call
        import frameloom.pipeline  # noqa: F401
        from frameloom.frames import watch_frames

        # Not at the first call, where tensors may be of another kind: those of inference mode do not count writes.
        with torch.inference_mode(False), torch._C._DisableTorchDispatch():
            _capture.calibrate()
        if config.frames:
            watch_frames()


def stats() -> dict[str, int]:
    """Counts since the last reset: graphs compiled, graph breaks, recompiles, cases left to plain Python, failures of Frameloom itself
    that cost no more than a graph, and calls that were verified and that could not be, where there were any."""
    passed_over = failures()
    return {**_counts, **({"failures": passed_over} if passed_over else {}), **verified}


def reset() -> None:
    """Forget everything compiled and all counts; the next calls compile afresh.  The kernel cache on disk stays."""
    from frameloom import frames
    from frameloom.capture.driver.capture_call import forget_all

    frames.forget()
    for jitted in list(compilers):
        jitted.clear()
        jitted.enabled = True
    forget_all()
    forget_notices()
    forget_failures()
    verified.clear()
    for key in _counts:
        _counts[key] = 0


def _entry_for(jitted: Any, slots: tuple[Any, ...]) -> Any:
    """The entry that another thread made for this case in the meantime, or None."""
    for entry in reversed(jitted.entries):
        if entry.guards.explain_failure(slots, None, jitted.__wrapped__) is None:
            return entry
    return None


@cache
def _cached_cast() -> Any:
    """PyTorch's function that makes and finds the casts that autocast keeps, None if it has none."""
    found = _runtime.cached_cast(torch.zeros((), device="cpu"), 6, 0)
    return None if found is None else _runtime.cached_cast


class Compiler:
    """`compiler(jitted, slots, None)` returns the Entry for a call, or None for plain Python."""

    def __init__(self, name: str, options: Options) -> None:
        self.options = options
        self._name = name
        self._stack = STACK
        self._changes = 0  # of frozen tensors
        self.capture_session: Any = None  # see capture/driver/session.py
        self._explanation: Explanation | None = None

    @property
    def explanation(self) -> Explanation:
        """What is compiled from the first look at this on; before it, nothing is kept."""
        if self._explanation is None:
            self._explanation = Explanation(self._name)
        return self._explanation

    @property
    def cached_cast(self) -> Any:
        return _cached_cast()

    @property
    def too_deep(self) -> bool:
        """Whether the recursion limit leaves no room for a compile here."""
        return _capture.stack_room() < self._stack

    def __call__(self, jitted: Any, slots: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        if builtins_are_replaced() or self.too_deep:
            return None
        suspended = _capture.hook_suspend()
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
            _capture.hook_restore(suspended)

    def _drop_stale(self, jitted: Any) -> None:
        """Entries whose frozen tensors were written to go, with the memory of what was made of these.  Tensors that are
        written to again and again are not frozen any more."""
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
        from frameloom.capture.driver.capture_call import capture_call
        from frameloom.capture.guards.dispatch_modes import modes_kept
        from frameloom.runtime.build.triton_compiler import prewarm

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
            # Only a call from less deep is worth another try.
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
            _counts["recompiles"] += 1
            log("recompiles", f"{name}: {why}")
        self._dump_entry(outcome, name, trail)
        trail.close()
        if (told := self._explanation) is not None:
            for stage, seconds in trail.seconds.items():
                told.seconds[stage] = told.seconds.get(stage, 0.0) + seconds
        return outcome

    def _retreat(self, name: str, error: Exception) -> bool:
        """Whether to try again with an entry for each shape."""
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

    # ---- what capture calls back

    def compile_graph(self, captured: Any, trail: Trail) -> Any:
        """Compile one captured graph; returns a function of its inputs."""
        from frameloom.pipeline import compile_graph

        with others_may_compile() if callable(self.options.backend) else nullcontext():
            compiled, report = compile_graph(captured, self.options, trail)
        _counts["graphs"] += 1
        if self._explanation is not None:
            self._explanation.graphs.append(report)
        return compiled

    def compile_part(self, captured: Any, trail: Trail) -> Any:
        """Compile what a graph calls."""
        from frameloom.pipeline import compile_graph

        return compile_graph(captured, self.options, trail)[0]

    def add_break(self, report: BreakReport) -> None:
        """A graph break was compiled in; under fullgraph=True it is an error."""
        if self.options.fullgraph:
            raise FullGraphError(report.text)
        _counts["breaks"] += 1
        if self._explanation is not None:
            self._explanation.breaks.append(report)
        log("breaks", report.text)

    def add_plain(self, reason: str) -> None:
        """A case is left to plain Python."""
        _counts["plain"] += 1
        if "gradient" in reason:
            notice(
                "gradient",
                f"{reason}; such calls run as plain Python for now (use torch.no_grad() where none is needed)",
            )
        if self._explanation is not None and len(self._explanation.plain) < REASONS:
            self._explanation.plain.append(reason)
        log("breaks", f"plain: {reason}")

    def add_guards(self, guards: Any) -> None:
        """The guards of a new entry."""
        if self._explanation is not None:
            self._explanation.guards.extend(guards.texts())
        if "guards" in config.logs:
            log("guards", "\n".join(guards.texts()))

    # ---- messages

    def _why_missed(self, jitted: Any, slots: tuple[Any, ...]) -> str:
        entries = jitted.entries
        # What serves most shapes, or else the newest.
        several = (e for e in entries if e.varies and e.kind != "plain")
        guards = next(several, entries[-1]).guards
        return guards.explain_failure(slots, None, jitted.__wrapped__) or "guards pass now"

    def _explain_limit(self, jitted: Any, slots: tuple[Any, ...]) -> None:
        notice(
            f"limit:{id(jitted)}",
            f"{jitted.__qualname__} has {len(jitted.entries)} compiled entries (the limit, FRAMELOOM_ENTRIES); "
            f"new cases run plainly. The newest case differs in: {self._why_missed(jitted, slots)}",
            jitted,
        )
