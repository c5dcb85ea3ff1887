"""Operators of the program that write to their arguments are part of a graph."""

import pytest
import torch

from tests.helpers import check


@torch.library.custom_op("frameloom_tests::double_", mutates_args=("x",))
def double_(x: torch.Tensor) -> None:
    x.mul_(2)


@torch.library.custom_op("frameloom_tests::add_and_tell", mutates_args=("a", "b"))
def add_and_tell(a: torch.Tensor, n: int, b: torch.Tensor) -> torch.Tensor:
    a.add_(n)
    b.sub_(n)
    if n > 5:
        raise ValueError("too many")
    return a.sum()


@add_and_tell.register_fake
def _(a, n, b):
    return a.new_empty(())


def of_intermediate(x):
    y = x + 1
    double_(y)
    return y * 3


def of_input(x):
    double_(x)
    return x + 1


def of_view(x):
    y = x + 1
    double_(y[0])
    return y, x * 2


def with_result(x):
    a, b = x + 1, x * 1
    total = add_and_tell(a, 2, b=b)
    return a, b, total + 1


@pytest.mark.parametrize("fn", [of_intermediate, of_input, of_view, with_result])
def test_what_an_operator_writes(fn):
    check(fn, torch.ones(3, 2), breaks=0, graphs=1)


def test_what_it_raises_comes_where_nobody_uses_what_it_writes():
    def raises(x):
        y = x + 1
        add_and_tell(y, 6, y.clone())
        return x * 2

    check(raises, torch.ones(3))
