"""Forced capture: every function that this thread calls is captured, whether or not it works with tensors.

A callback of the frame hook captures each fresh frame and gives the entry that runs its rewritten code: effects replayed, objects rebuilt, resumed
behind breaks.  Graphs are run as they are.  What is left to CPython is counted with the reason.

Only generators, coroutines, module and class bodies are never seen by the hook; generators are interpreted where a captured function uses them up.
"""

from __future__ import annotations

import collections
import os
import time
import traceback
from contextlib import contextmanager
from types import SimpleNamespace

from frameloom.capture import _capture
from frameloom.capture.driver.capture_call import capture_call
from frameloom.capture.driver.session import session_of
from frameloom.capture.guards.dispatch_modes import modes_kept
from frameloom.capture.interpreter import step_limits
from frameloom.capture.resume.resume_function import is_made
from frameloom.capture.speculation.assume import restarting
from frameloom.collector import collector_off

MAX_STEPS = 4_000  # of one capture; the product allows more
MAX_ENTRIES = 4  # of one function, and of what goes on behind one break
SHOW_BUGS = "FORCED_SHOW_BUGS" in os.environ
OWN_FILES = (__file__, os.path.join(os.path.dirname(__file__), "child.py"))
SECONDS = 240.0  # for all captures of a process; what comes later runs plainly


class Forced:
    """Counts of one run; `captured` by kind of entry, `left` and `breaks` by reason, `bugs` are tracebacks of our own failures."""

    def __init__(self, seconds: float = SECONDS, trace=None) -> None:
        self.captured = collections.Counter()
        self.left = collections.Counter()
        self.breaks = collections.Counter()
        self.bugs = collections.Counter()
        self.seconds = 0.0
        self.limit = seconds
        self.trace = trace
        self._compilers = {}

    def __call__(self, function, slots):
        """The frame callback."""
        code = function.__code__
        is_ours = (function.__module__ or "").startswith("frameloom.")
        if is_ours or code.co_filename in OWN_FILES or is_made(function):
            return None
        if code.co_filename.startswith("<frozen importlib"):
            self.left["import machinery"] += 1
            return None
        known = self._compilers.get(id(code))
        if known is None:
            known = self._compilers[id(code)] = Compiler(self)
            known.code = code  # keeps the id meaningful
        return known.compile(Target(function, known), slots)

    def report(self) -> dict:
        calls = collections.Counter()
        for compiler in self._compilers.values():
            for entry in compiler.entries:
                calls[entry.kind] += entry.calls
        return {
            "functions": len(self._compilers),
            "captured": dict(self.captured),
            "calls": dict(calls),
            "left": dict(self.left.most_common()),
            "breaks": dict(self.breaks.most_common()),
            "bugs": dict(self.bugs.most_common()),
            "seconds": round(self.seconds, 1),
        }


class Target:
    """What `capture_call` wants of a jitted function."""

    def __init__(self, function, compiler) -> None:
        self.__wrapped__ = function
        self.compiler = compiler
        self.enabled = True
        self.entries = []

    def add(self, entry) -> None:
        self.entries.append(entry)


class Compiler:
    """Of one code object and what goes on behind its breaks; graphs run as they are."""

    def __init__(self, forced: Forced) -> None:
        self.options = SimpleNamespace(
            fullgraph=False, freezing=False, memory_budget=None, dynamic=None
        )
        self.forced = forced
        self.entries = []
        self.made = 0
        session_of(self).per_code = session_of(self).forced = True

    def __call__(self, jitted, slots):
        """A miss of a resume function."""
        if len(jitted.entries) >= MAX_ENTRIES:
            self.forced.left["entries"] += 1
            return None
        suspended = _capture.hook_suspend(True)
        try:
            return self.compile(jitted, slots)
        finally:
            _capture.hook_suspend(suspended)

    def compile(self, jitted, slots):
        forced = self.forced
        if isinstance(jitted, Target):
            self.made += 1
            if self.made > MAX_ENTRIES:
                forced.left["entries"] += 1
                return None
        if forced.seconds > forced.limit:
            forced.left["time"] += 1
            return None
        if forced.trace:
            forced.trace(jitted.__wrapped__)
        start = time.perf_counter()
        breaks = sum(forced.breaks.values())
        try:
            with collector_off(), modes_kept():
                entry = capture_call(jitted, slots, self, None)
        except RecursionError:  # as in the product: this call came from too deep
            forced.left["no room on the stack"] += 1
            return None
        except Exception as error:
            forced.bugs[bug_text(jitted.__wrapped__, error)] += 1
            if SHOW_BUGS:
                traceback.print_exc()
            forced.left["internal error"] += 1
            return None
        finally:
            forced.seconds += time.perf_counter() - start
        if entry is not None:
            self.entries.append(entry)
            if entry.kind == "plain":
                forced.left[kind_of(entry.target)] += 1
            else:
                forced.captured["broken" if sum(forced.breaks.values()) > breaks else "whole"] += 1
        return entry

    # --- what capture calls back

    def compile_graph(self, graph, trail):
        return restarting(graph.gm) if graph.restarts else graph.gm

    def add_break(self, report):
        self.forced.breaks[report.kind] += 1

    def add_plain(self, reason):
        pass

    def add_guards(self, texts):
        pass


def kind_of(reason: str) -> str:
    """A reason without names and numbers, so that like ones are counted together."""
    return reason.partition("(")[0].partition(":")[0].strip()[:60]


def bug_text(function, error) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} at {last.filename}:{last.lineno} in {function.__qualname__}"


class _Patched:
    def __init__(self, module, **values) -> None:
        self.module, self.values = module, values

    def __enter__(self):
        self.before = {name: getattr(self.module, name) for name in self.values}
        vars(self.module).update(self.values)

    def __exit__(self, *exc):
        vars(self.module).update(self.before)


@contextmanager
def forced_capture(seconds: float = SECONDS, trace=None):
    """Capture everything that is called inside; gives the counts."""
    forced = Forced(seconds, trace)
    with _Patched(step_limits, MAX_STEPS=MAX_STEPS, MAX_IDLE_STEPS=MAX_STEPS):
        _capture.set_frame_callback(forced)
        _capture.hook_enter()
        try:
            yield forced
        finally:
            _capture.hook_exit()
            _capture.set_frame_callback(None)
