"""`captured(fn, *args)`: run `fn` plainly and captured, where graphs run as they were recorded, and compare everything that can be seen."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from frameloom.capture import _capture
from frameloom.capture.driver.capture_call import capture_call
from frameloom.capture.recording.captured_graph import runnable_graph, without_examples
from frameloom.capture.speculation.assume import restarting
from tests.observe import assert_same_call, observe


def as_recorded(forward):
    """What autocast adds is in the graph already."""

    def run(*inputs):
        was = torch.is_autocast_enabled("cpu")
        torch.set_autocast_enabled("cpu", False)
        try:
            with torch.no_grad():
                return forward(*inputs)
        finally:
            torch.set_autocast_enabled("cpu", was)

    return run


def node_by_node(captured):
    """A function that runs the graph; its Python code is not written and compiled, which takes longer than small graphs run."""
    steps, constants = [], captured.constants
    graph = runnable_graph(captured.graph)
    places = {node: place for place, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        target = constants.get_buffer(node.target) if node.op == "get_attr" else node.target
        steps.append((node.op, target, node.args, node.kwargs))

    def run(*inputs):
        values, given = [], iter(inputs)

        def value_of(node):
            return values[places[node]]

        for op, target, args, kwargs in steps:
            if op == "placeholder":
                values.append(next(given))
            elif op == "get_attr":
                values.append(target)
            elif op == "output":
                return torch.fx.node.map_arg(args[0], value_of)
            else:
                values.append(
                    target(
                        *torch.fx.node.map_arg(args, value_of),
                        **torch.fx.node.map_arg(kwargs, value_of),
                    )
                )

    return run


class GraphRunner:
    """Stands in for the compiler: a captured graph runs as it is."""

    def __init__(self):
        self.options = SimpleNamespace(
            fullgraph=False, freezing=False, memory_budget=None, dynamic=None
        )
        self.graphs, self.breaks, self.plain, self.guards = [], [], [], []

    def compile_graph(self, graph, trail):
        self.graphs.append(without_examples(graph))
        run = as_recorded(node_by_node(graph))
        return restarting(run) if graph.restarts else run

    def compile_part(self, graph, trail):
        return as_recorded(node_by_node(graph))

    def add_break(self, report):
        self.breaks.append(report)

    def add_plain(self, reason):
        self.plain.append(reason)

    def add_guards(self, guards):
        self.guards += guards.texts()

    def __call__(self, jitted, slots):
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
        assert_same_call(got, want, f"call {call}")
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
