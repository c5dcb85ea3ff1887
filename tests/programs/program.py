"""`@program(...)` makes a function of a test_NN_subject.py file a test: it is a small program, run plainly and jitted and compared on everything
that `tests/observe.py` sees, with the number of graphs and the breaks that are right for it.

    @program()                                   # one graph, no break; called with X
    def append(x):
        ...

    @program(graphs=2, breaks="print")           # ids of the catalogue, in order, a space between
    def print_between(x):
        ...

    @program(args=(X, [1, 2]))                   # copied for each side; aliasing among the arguments is kept
    @program(args=lambda: (Net(), X))            # made anew for each side
    @program(calls=[(X, 1), (X, 2)], graphs=2)   # several calls of the same jitted function
    @program(before=reset, state=lambda: TABLE)  # run before every call; what else to compare after it
    @program(plain=True, graphs=0)               # left to plain Python as a whole: nothing to compile, or a reason to stay away
    @program(grad=True)                          # with gradients being recorded

The function stays what it is, so that programs can call each other.  Graphs run as they were recorded; with FRAMELOOM_PROGRAMS=compiled they
go through the whole compiler.  A file of programs says PYTEST_DONT_REWRITE, since the programs' own asserts are part of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from frameloom import jit
from tests.capture.capturing import jitted
from tests.observe import assert_same_call, observe

X = torch.arange(12.0).reshape(3, 4) - 5
COMPILED = os.environ.get("FRAMELOOM_PROGRAMS") == "compiled"


def program(
    graphs: int = 1,
    breaks: str = "",
    args: Any = (X,),
    calls: Any = None,
    before: Callable[[], Any] | None = None,
    state: Callable[[], Any] | None = None,
    plain: bool = False,
    grad: bool = False,
) -> Callable[[Any], Any]:
    """See above."""

    def mark(fn: Any) -> Any:
        def run() -> None:
            target, seen = _jitted(fn)
            for number, given in enumerate(calls or [args, args]):
                results = []
                for side in (fn, target):
                    if before is not None:
                        before()
                    results.append(observe(side, given, state=state, grad=grad))
                try:
                    assert_same_call(results[1], results[0], f"call {number}")
                except AssertionError as error:
                    error.add_note("\n".join([b.text for b in seen.breaks] + seen.plain))
                    raise
            if COMPILED:
                return  # the frame hook captures functions that only plain pieces call, too
            report = "\n".join([b.text for b in seen.breaks] + seen.plain)
            found = " ".join(b.kind for b in seen.breaks)
            assert (len(seen.graphs), found) == (graphs, breaks), (
                f"{len(seen.graphs)} graphs and breaks [{found}]; expected {graphs} and [{breaks}]\n{report}"
            )
            assert bool(seen.plain) is plain, f"plain: {seen.plain}"

        fn.__program__ = run
        return fn

    return mark


def _jitted(fn: Any) -> tuple[Any, Any]:
    if not COMPILED:
        return jitted(fn)
    target = jit(fn)
    return target, target.on_miss.explanation


def collect(collector: Any, name: str, obj: Any) -> Any:
    """For pytest's `pytest_pycollect_makeitem`."""
    run = getattr(obj, "__program__", None)
    if run is None or getattr(obj, "__module__", None) != collector.obj.__name__:
        return None
    return pytest.Function.from_parent(collector, name=name, callobj=run)
