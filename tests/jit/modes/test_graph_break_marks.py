"""What programs tell PyTorch's compiler about graph breaks means the same here.

In processes of their own: that compiler patches PyTorch when it is imported.
"""

import textwrap

from tests import fresh

START = """
import torch, frameloom
from frameloom import jit
from torch._dynamo import error_on_graph_break, graph_break, nonstrict_trace

X = torch.arange(3.0)

def breaking(x):
    x = x + 1
    graph_break()
    return x + 2

def agrees(fn, plain, breaks):
    assert torch.equal(fn(X), plain(X)) and torch.equal(fn(X), plain(X))
    assert len(frameloom.explain(fn)(X).breaks) == breaks

def refuses(fn):
    try:
        fn(X)
    except frameloom.FullGraphError as error:
        assert "graph_break" in str(error), error
    else:
        raise AssertionError("no error")
"""


def run(program):
    text = START + textwrap.dedent(program)
    fresh.run(text, imported=("torch", "tests.helpers", "torch._dynamo"), check=True)


def test_a_break_is_an_error_where_the_program_says_so():
    run("""
        refuses(error_on_graph_break(True)(jit(breaking)))
        asked = error_on_graph_break(True)(breaking)
        refuses(jit(lambda x: asked(x * 2)))

        @jit
        def inside(x):
            with error_on_graph_break(True):
                x = x * 2
                graph_break()
            return x
        refuses(inside)
        agrees(jit(breaking), breaking, 1)
    """)


def test_the_innermost_answer_counts():
    run("""
        allowed = error_on_graph_break(False)(breaking)
        outer = error_on_graph_break(True)(jit(lambda x: allowed(x * 2) * 3))
        assert torch.equal(outer(X), breaking(X * 2) * 3) and torch.equal(outer(X), breaking(X * 2) * 3)

        def both(x):
            with error_on_graph_break(True):
                x = x * 2
                with error_on_graph_break(False):
                    graph_break()
                    x = x + 1
                    graph_break()
                return x * 3
        agrees(jit(both), both, 2)

        def behind(x):
            with error_on_graph_break(True):
                with error_on_graph_break(False):
                    graph_break()
                x = x + 1
                graph_break()
            return x
        refuses(jit(behind))
        # The exception has left both blocks.
        assert torch._dynamo.utils._error_on_graph_break is False
    """)


def test_one_graph_stays_one_graph():
    run("""
        allowed = error_on_graph_break(False)(breaking)
        refuses(jit(lambda x: allowed(x), fullgraph=True))

        def fine(x):
            with error_on_graph_break(False):
                return x * 2 + 1
        agrees(jit(fine, fullgraph=True), fine, 0)
    """)


def test_a_function_inside_keeps_fullgraph():
    run("""
        whole = jit(breaking, fullgraph=True)
        refuses(jit(lambda x: whole(x * 2)))
        parts = jit(breaking)
        refuses(jit(lambda x: parts(x * 2), fullgraph=True))

        fine = jit(lambda x: x * 2, fullgraph=True)
        def outside(x):
            x = fine(x)
            graph_break()
            return fine(x)
        agrees(jit(outside), outside, 1)
    """)


def test_breaks_inside_nonstrict_functions_are_ignored():
    run("""
        marked = nonstrict_trace(breaking)
        agrees(jit(lambda x: marked(x * 2), fullgraph=True), lambda x: breaking(x * 2), 0)
        agrees(jit(lambda x: nonstrict_trace(breaking)(x), fullgraph=True), breaking, 0)
        agrees(jit(lambda x: breaking(marked(x))), lambda x: breaking(breaking(x)), 1)

        @nonstrict_trace
        def number():
            graph_break()
            return 42
        agrees(jit(lambda x: x + number(), fullgraph=True), lambda x: x + 42, 0)
    """)
