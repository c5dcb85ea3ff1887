"""Calls of a plan that own their inputs: each is let go of after its last use."""

import gc
import weakref

import pytest
import torch

from frameloom.runtime.spec import InputSpec
from tests.runtime.plans import extern, plan, view


def test_inputs_that_a_call_owns_go_after_their_last_use():
    seen = []
    first, second, third, unused = (torch.randn(4) for _ in range(4))
    there = [weakref.ref(t) for t in (first, second, third, unused)]

    def look(*args):
        seen.append([r() is not None for r in there])

    steps = [
        extern("test.look", look, (view(0, (4,)),), ()),
        extern("test.look", look, ([InputSpec(1)],), ()),
        extern("test.look", look, (), ()),
    ]
    p = plan([first, second, third, unused], [], steps, (view(2, (2,)),))
    expected, inputs = third[:2].clone(), [first, second, third, unused]
    del first, second, third, unused
    (result,) = p.consume(inputs)
    assert inputs == [] and torch.equal(result, expected)
    assert seen == [
        [True, True, True, False],
        [False, True, True, False],
        [False, False, True, False],
    ]
    del result
    assert there[2]() is None


def test_owned_inputs_go_when_a_call_fails():
    def fail(x):
        raise KeyError("not here")

    x, y = torch.randn(4), torch.randn(4)
    there = [weakref.ref(x), weakref.ref(y)]
    p = plan([x, y], [], [extern("test.fail", fail, (view(0, (4,)),), ())], (1,))
    inputs = [x, y]
    del x, y
    with pytest.raises(TypeError, match="takes 2 inputs"):
        p.consume(inputs[:1])
    with pytest.raises(KeyError):
        p.consume(inputs)
    gc.collect()
    assert [r() for r in there] == [None, None] and inputs == []
