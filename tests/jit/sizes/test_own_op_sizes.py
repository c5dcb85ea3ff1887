"""Ops of the program that give as many elements as their data says, and ask for that size in their fake functions."""

import pytest
import torch

from frameloom import explain, jit
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


@torch.library.custom_op("frameloom_tests::kept", mutates_args=())
def kept(rows: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return (scores > rows.sum(1)).nonzero().squeeze(1)


@kept.register_fake
def _(rows, scores):
    torch._check(rows.size(0) == scores.size(0))
    return rows.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


@torch.library.custom_op("frameloom_tests::pooled", mutates_args=())
def pooled(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return x.sum(0) * rows[:, :1]


@pooled.register_fake
def _(x, rows):
    return x.new_empty(rows.size(0), x.size(1))


@torch.library.custom_op("frameloom_tests::pairs", mutates_args=())
def pairs(x: torch.Tensor) -> torch.Tensor:
    picked = x[x > 0]
    return picked[:, None] * picked.repeat(2)


@pairs.register_fake
def _(x):
    n = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(n, 2 * n)


def selected(x, scores):
    mask = scores > 0
    x, scores = x[mask], scores[mask]
    at = kept(x, scores)[:3]
    return x[at], scores[at], pooled(x, x[at]), at.shape[0]


SELECTIONS = {
    "of_unbacked_sizes": selected,
    "of_joined_sizes": lambda x, scores: selected(
        torch.cat([x[scores > 1], x[scores < 0.5]]), torch.cat([scores[scores > 1], scores[scores < 0.5]])
    ),
    "of_given_sizes": lambda x, scores: (kept(x, scores) + 1, pooled(x, x[1:]) * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", SELECTIONS)
def test_sizes_before_are_not_known_either(name):
    fn = SELECTIONS[name]
    jitted = jit(lambda x, s: fn(x, s), fullgraph=True, dynamic=name == "of_given_sizes")
    for n in (9, 9, 9, 12, 30):
        made = torch.Generator().manual_seed(n)
        x, scores = torch.randn(n, 2, generator=made), torch.randn(n, generator=made)
        sides = [observe(f, lambda x=x, s=scores: (x, s)) for f in (fn, jitted)]
        assert_same_call(sides[1], sides[0], str(n))
    for scores in (-torch.ones(9), torch.full((9,), 0.25), torch.full((9,), 1e6)):
        sides = [observe(f, lambda s=scores: (torch.ones(9, 2), s)) for f in (fn, jitted)]
        assert_same_call(sides[1], sides[0], str(scores))


def test_another_size_that_depends_on_the_same_number_breaks_the_graph():
    def fn(x):
        return pairs(x) + 1

    jitted = jit(fn)
    for x in (torch.tensor([1.0, -1.0, 2.0]), torch.tensor([-1.0, 3.0, -2.0])):
        assert torch.equal(jitted(x), fn(x))
    assert explain(fn)(x).breaks
