"""Inputs that no op of the graph reads in the end, but whose sizes those of others turned out to equal."""

import pytest
import torch

from frameloom import jit
from tests.helpers import jit_for_test


def dead_product(x, y):
    x * y
    return y * 1


def dead_cat(x, y):
    torch.cat([x, y], 1)
    return y * 1


def dead_write(x, y):
    x.flip(0).add_(y)
    return y + 1, y.shape


@pytest.mark.parametrize("fn", [dead_product, dead_cat, dead_write])
def test_one_graph_for_all_sizes(fn):
    jitted = jit_for_test(fn, dynamic=True)
    for n in (3, 4, 5):
        made = jitted(torch.ones(n, 2, 2), torch.full((n, 2, 2), 3.0))
        torch.testing.assert_close(made, fn(torch.ones(n, 2, 2), torch.full((n, 2, 2), 3.0)))
    assert len(jitted.explanation.graphs) == 1


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def test_a_number_that_only_a_function_without_result_reads():
    def fn(y, n, table):
        Rounded.apply(y[..., :n][0])
        return table["missing"]

    jitted = jit(fn, dynamic=True)
    for n in (5, 2):
        with pytest.raises(KeyError, match="missing"):
            jitted(torch.rand(3, 3, requires_grad=True) * 1, n, {})


def test_a_number_that_only_a_function_reads():
    def fn(y, n):
        return Rounded.apply(y[:, :n]) * 2

    jitted = jit(fn, dynamic=True)
    for n in (3, 2, 1):
        y = torch.rand(3, 3, requires_grad=True)
        jitted(y, n).sum().backward()
        assert y.grad.sum() == 6 * n
