"""`captured(fn, *args)`: run `fn` plainly and captured, where graphs run as they were recorded, and compare everything that can be seen."""

from __future__ import annotations

import contextlib
import copy
import io
from types import SimpleNamespace

import torch
from torch.utils import _pytree as pytree

from frameloom.capture import _capture
from frameloom.capture.frame_capture import capture_call


class GraphRunner:
    """Stands in for the compiler: a captured graph runs as it is."""

    def __init__(self):
        self.options = SimpleNamespace(fullgraph=False)
        self.graphs, self.breaks, self.plain, self.guards = [], [], [], []

    def compile_graph(self, graph, trail):
        self.graphs.append(graph)
        return graph.gm

    def add_break(self, report):
        self.breaks.append(report)

    def add_plain(self, reason):
        self.plain.append(reason)

    def add_guards(self, texts):
        self.guards += texts

    def __call__(self, jitted, slots, kwargs):
        if len(jitted.entries) >= 16:
            return None
        return capture_call(jitted, slots, self, None)


def jitted(fn):
    """The jitted function and its runner."""
    runner = GraphRunner()
    return _capture.JitFunction(fn, runner), runner


def captured(fn, *args, graphs=None, breaks=None, kinds=None, calls=2, no_plain=False, **kwargs):
    """Compare `calls` calls; returns the runner."""
    target, runner = jitted(fn)
    for call in range(calls):
        want, got = observe(fn, args, kwargs), observe(target, args, kwargs)
        if type(got.error) is not type(want.error):
            raise AssertionError(
                f"call {call}: {got.error!r} instead of {want.error!r}"
            ) from got.error
        assert str(got.error) == str(want.error)
        assert got.printed == want.printed, f"call {call}"
        same(got.result, want.result, f"call {call}")
        same(got.arguments, want.arguments, f"call {call}, arguments")
    found = [b.kind for b in runner.breaks]
    if graphs is not None:
        assert len(runner.graphs) == graphs, (len(runner.graphs), runner.breaks, runner.plain)
    if breaks is not None:
        assert len(found) == breaks, [b.text for b in runner.breaks]
    if kinds is not None:
        assert found == kinds, [b.text for b in runner.breaks]
    if no_plain:
        assert not runner.plain
    return runner


class observe:
    def __init__(self, fn, args, kwargs):
        self.arguments = copy.deepcopy((args, kwargs))
        self.result = self.error = None
        torch.manual_seed(0)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), torch.no_grad():
            try:
                self.result = fn(*self.arguments[0], **self.arguments[1])
            except Exception as error:
                self.error = error
        self.printed = out.getvalue()


def same(got, want, where):
    got_leaves, got_spec = pytree.tree_flatten(got)
    want_leaves, want_spec = pytree.tree_flatten(want)
    assert got_spec == want_spec, f"{where}: {got_spec} instead of {want_spec}"
    for a, b in zip(got_leaves, want_leaves, strict=True):
        assert type(a) is type(b), f"{where}: {a!r} instead of {b!r}"
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride(), where
            torch.testing.assert_close(a, b, equal_nan=True, msg=lambda m: f"{where}: {m}")
        elif isinstance(a, int | float | str | bool | None):
            assert a == b, f"{where}: {a!r} instead of {b!r}"
