"""The order among groups that are merged: as a search along what each waits for tells it."""

import random

import pytest

from frameloom.ir.dtype import DType
from frameloom.ir.passes.dependence import Graph
from frameloom.ir.program import Buffer, Extern, Kind, Program, View


def calls(uses):
    """Call k reads what these earlier calls made."""
    buffers = [Buffer(f"b{k}", DType.F32, (4,), (1,), Kind.TEMP) for k in range(len(uses))]
    steps = []
    for own, buffer in zip(uses, buffers, strict=True):
        args = tuple(View(buffers[k], (4,), (1,)) for k in sorted(own))
        steps.append(Extern("aten.relu.default", args, (), (buffer,)))
    outputs = tuple(View(b, (4,), (1,)) for b in buffers)
    return Program((), tuple(steps), outputs)


def reached(edges, start):
    seen, stack = set(), [start]
    while stack:
        new = edges[stack.pop()] - seen
        seen |= new
        stack += new
    return seen


@pytest.mark.parametrize("seed", range(20))
def test_order_among_merged_groups(seed):
    random.seed(seed)
    n = 16
    uses = [set(random.sample(range(k), min(k, random.randint(0, 3)))) for k in range(n)]
    graph = Graph(calls(uses))
    into = [set() for _ in range(n)]  # which groups wait for one
    for k, own in enumerate(uses):
        for u in own:
            into[u].add(k)
    while True:
        found = []
        for x in graph.groups:
            for y in graph.groups:
                behind = reached(into, x)
                assert graph.depends(graph.groups[y], graph.groups[x]) == (y in behind and x != y)
                if x < y:
                    between = any(
                        (m in behind and y in reached(into, m))
                        or (m in reached(into, y) and x in reached(into, m))
                        for m in graph.groups.keys() - {x, y}
                    )
                    a, b = graph.groups[x], graph.groups[y]
                    assert graph.mergeable(a, b) == (not between)
                    found += [] if between else [(x, y)]
        assert sorted(g.number for g in graph.ordered()) == sorted(graph.groups)
        if not found:
            break
        x, y = random.choice(found)
        graph.merge(graph.groups[x], graph.groups[y], [])
        into[x] = (into[x] | into[y]) - {x, y}
        into = [{x if m == y else m for m in own} - {k} for k, own in enumerate(into)]


def test_what_is_read_is_in_the_order_of_the_program():
    """Kernels are merged in that order; where buffers lie in memory must not decide, since kernels are kept by their text."""
    program = calls([set()] * 12 + [set(range(12))])
    assert [b.name for b in Graph(program).readers] == [f"b{k}" for k in range(12)]
