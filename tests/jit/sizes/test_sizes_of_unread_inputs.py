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


def test_one_graph_where_sizes_follow_through_several():
    def fn(x, y, z):
        sum([y, z], x[:2])
        return y.diagonal()

    jitted = jit_for_test(fn, dynamic=True)
    for n in (3, 4, 5):
        x, y, z = torch.ones(n, n, 2), torch.ones(2, n, 2), torch.ones(2, n, 2)
        torch.testing.assert_close(jitted(x, y, z), fn(x, y, z))
    assert len(jitted.explanation.graphs) == 1


def test_a_size_that_only_a_check_of_the_data_needs():
    def fn(x, y):
        x[: int((y > 0).sum())]

    jitted = jit_for_test(fn, dynamic=True)
    for n in (3, 4):
        jitted(torch.ones(n), torch.ones(n - 1))


def at_least(z, items):
    if max(1, items[0]) == z.shape[1]:
        z.mul_(2)


def at_most(z, items):
    if min(items[0], items[1]) == z.shape[1]:
        return (z * z.requires_grad_()).sum()


@pytest.mark.parametrize("fn", [at_least, at_most])
def test_a_size_that_equals_what_follows_from_numbers_only(fn):
    jitted = jit_for_test(fn, dynamic=True)
    for n in (3, 4, 5):
        mine, theirs = torch.ones(2, n), torch.ones(2, n)
        assert jitted(mine, [n, 7]) == fn(theirs, [n, 7])
        assert torch.equal(mine, theirs)


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
