"""Numbers that vary and come below 0, where such ones have a meaning of their own."""

import pytest
import torch

import frameloom
from tests.fuzz.interpret import interpreted

FUNCTIONS = {
    "expand": lambda x, n: x[n:].unsqueeze(0).expand(n, *x[n:].shape) * 1,
    "expand of its own": lambda x, n: x.expand(2, n) * 1,
    "pad": lambda x, n: torch.nn.functional.pad(x, (n, 0)),
}


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_eager(name, dynamic):
    fn = FUNCTIONS[name]
    with interpreted():
        jitted = frameloom.jit(fn, dynamic=dynamic)
        for size, n in ((3, 0), (4, -1), (5, -1), (4, 2), (6, 0), (5, -2)):
            x = torch.arange(float(size))
            assert outcome(jitted, x, n) == outcome(fn, x, n)


def outcome(fn, x, n):
    try:
        found = fn(x, n)
    except RuntimeError:
        return "RuntimeError"
    return found.tolist(), found.stride()


@pytest.mark.parametrize("dynamic", [True, None])
def test_a_pad_that_adds_nothing_keeps_the_layout(dynamic):
    """One that adds something lays its result out anew."""

    def fn(x, n, m):
        return torch.nn.functional.pad(x, (n, m))

    with interpreted():
        jitted = frameloom.jit(fn, dynamic=dynamic)
        for rows, n, m in ((5, 2, 0), (6, 0, 0), (5, -1, 1), (4, 0, 0), (3, 0, -1)):
            x = torch.arange(2.0 * rows).view(2, rows).t()
            assert jitted(x, n, m).stride() == fn(x, n, m).stride()
