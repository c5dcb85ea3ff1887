"""Ops of the program that give as many elements as their data says, and ask for that size in their fake functions."""

import pytest
import torch

from frameloom import jit
from tests.observe import assert_same_call, observe


@torch.library.custom_op("frameloom_tests::ones", mutates_args=())
def ones(x: torch.Tensor) -> torch.Tensor:
    return x.nonzero().squeeze(1)


@ones.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


@torch.library.custom_op("frameloom_tests::ones_and_all", mutates_args=())
def ones_and_all(x: torch.Tensor, by: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x[x > 0].repeat(by, 1), x * by


@ones_and_all.register_fake
def _(x, by):
    return x.new_empty(by, torch.library.get_ctx().new_dynamic_size()), torch.empty_like(x)


@torch.library.custom_op("frameloom_tests::parts", mutates_args=())
def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[x > 0], x[x <= 0]


@parts.register_fake
def _(x):
    ctx = torch.library.get_ctx()
    return x.new_empty(ctx.new_dynamic_size()), x.new_empty(ctx.new_dynamic_size())


CASES = {
    "values": lambda x: ones(x).float() + 1,
    "size": lambda x: ones(x) * ones(x).shape[0],
    "sum": lambda x: ones(x).sum(),
    "several": lambda x: [y + 1 for y in ones_and_all(x, 3)],
    "written": lambda x: ones(x).add_(1).float().mean(),
}


@pytest.mark.parametrize("name", CASES)
def test_one_graph_for_all_sizes(name):
    fn = CASES[name]
    jitted = jit(lambda x: fn(x), fullgraph=True)
    for x in ([1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 3.0]):
        sides = [observe(f, lambda x=x: (torch.tensor(x),)) for f in (fn, jitted)]
        assert_same_call(sides[1], sides[0], str(x))


def test_two_sizes_break_the_graph():
    jitted = jit(lambda x: [y + 1 for y in parts(x)])
    for x in (torch.tensor([1.0, -1.0, 2.0]), torch.tensor([-1.0, -1.0, 2.0])):
        for given, wanted in zip(jitted(x), parts(x), strict=True):
            assert torch.equal(given, wanted + 1)
