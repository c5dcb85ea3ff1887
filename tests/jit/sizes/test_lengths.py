"""Containers whose lengths differ from call to call make two compiles, and one more for each length that comes back."""

import copy

import pytest
import torch
from torch import nn

import frameloom
from frameloom import jit
from frameloom.capture import _capture

pytestmark = pytest.mark.filterwarnings("ignore:frameloom.*grows with each call")
CALLS = 12
rand = torch.rand


def averages(x, kept):
    kept.append(x.cos())
    return torch.stack(kept).mean(0) * 2 + 1


def chained(x, kept):
    for y in kept:
        x = x + y / len(kept)
    kept.append(x.tanh())
    return kept[-1] * 2 + 1


def counted(x, kept):
    kept.append(len(kept))
    return x * sum(kept)


def named(x, kept):
    kept[f"step{len(kept)}"] = x.sin()
    return sum(kept.values()) + x


def numbered(x, kept):
    kept[len(kept)] = x.sin()
    return torch.stack([kept[key] for key in kept]).sum(0)


def members(x, kept):
    kept.add(len(kept))
    return x * sum(kept)


@pytest.mark.parametrize("fn", [averages, chained, counted, named, numbered, members])
@torch.no_grad()
def test_a_container_that_grows(fn):
    frameloom.reset()
    kind = {named: dict, numbered: dict, members: set}.get(fn, list)
    mine, own, jitted = kind(), kind(), jit(fn)
    for _ in range(CALLS):
        x = rand(3)
        torch.testing.assert_close(jitted(x, mine), fn(x, own))
    if kind is not list:
        assert list(mine) == list(own)
    contents = (list(kept.values() if kind is dict else kept) for kept in (mine, own))
    torch.testing.assert_close(*contents)
    assert frameloom.stats()["graphs"] == 2
    assert frameloom.stats()["recompiles"] == 1


def added(x, *more, **named):
    return x + sum(more) * 2 + sum(named.values())


@pytest.mark.parametrize("by_name", [False, True])
@torch.no_grad()
def test_more_arguments_each_time(by_name):
    frameloom.reset()
    jitted = jit(added)
    for n in range(1, CALLS):
        args = [rand(3) for _ in range(n)]
        more = {f"x{i}": x for i, x in enumerate(args)} if by_name else {}
        args = args[:1] if by_name else args
        torch.testing.assert_close(jitted(*args, **more), added(*args, **more))
    assert frameloom.stats()["graphs"] == 2


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = []
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        self.cache.append(self.layer(x))
        return torch.cat(self.cache).sum(0)


@torch.no_grad()
def test_a_module_that_remembers():
    frameloom.reset()
    own = Remembers()
    mine = jit(copy.deepcopy(own))
    for _ in range(CALLS):
        x = rand(2, 4)
        torch.testing.assert_close(mine(x), own(x))
    assert frameloom.stats()["graphs"] == 2


@torch.no_grad()
def test_each_piece_between_breaks_makes_two():
    def inner(x, kept):
        return torch.stack(kept).sum(0) + x

    def outer(x, kept):
        y = x.sin() * 2
        kept.append(y)
        frameloom.graph_break()
        z = inner(y, kept)
        frameloom.graph_break()
        return z.cos() + inner(z, kept)

    frameloom.reset()
    mine, own, jitted = [], [], jit(outer)
    for _ in range(CALLS):
        x = rand(3)
        torch.testing.assert_close(jitted(x, mine), outer(x, own))
    assert frameloom.stats()["graphs"] == 5  # the first piece does not look into the list


@torch.no_grad()
def test_functions_that_the_hook_compiles_make_two_each():
    def scored(rows):
        return (torch.stack(rows).sin() * 2).sum().item()

    def longest(lists):
        return sorted(lists, key=scored)[0][0] * 2

    frameloom.reset()
    jitted = jit(longest)
    for n in range(1, CALLS):
        lists = [[rand(3) for _ in range(n)]]
        torch.testing.assert_close(jitted(lists), longest(lists))
    assert frameloom.stats()["graphs"] <= 4


def test_gradients():
    frameloom.reset()
    mine, own, jitted = [], [], jit(averages)
    for _ in range(CALLS):
        x = rand(3).requires_grad_()
        found = [
            torch.autograd.grad(f(x, kept).sum(), x, retain_graph=True)
            for f, kept in ((jitted, mine), (averages, own))
        ]
        torch.testing.assert_close(*found)
    assert frameloom.stats()["graphs"] == 2


@torch.no_grad()
def test_lengths_that_come_back_or_stay_are_compiled():
    frameloom.reset()
    jitted = jit(lambda xs: torch.stack(xs).sum(0) * 2)
    for n in (2, 3, 4, 2, 3, 4):
        jitted([rand(3) for _ in range(n)])
    assert frameloom.stats()["graphs"] == 3
    for n in (5, 4, 5):
        jitted([rand(3) for _ in range(n)])
    assert frameloom.stats()["graphs"] == 4
    for _ in range(40):
        jitted([rand(3) for _ in range(6)])
    assert frameloom.stats()["graphs"] == 5
    assert not frameloom.stats()["breaks"]


@torch.no_grad()
def test_each_length_has_an_entry_where_nothing_is_dynamic():
    frameloom.reset()
    jitted = jit(averages, dynamic=False)
    kept = []
    for _ in range(5):
        jitted(rand(3), kept)
    assert frameloom.stats()["graphs"] == 5


@torch.no_grad()
def test_in_a_large_function_the_rest_is_compiled():
    def large(x, kept):
        for i in range(40):
            x = (x * 1.01).sin() + i
        kept.append(x)
        return torch.stack(kept).sum(0) + 1

    frameloom.reset()
    mine, own, jitted = [], [], jit(large)
    for n in range(CALLS):
        x = rand(3)
        torch.testing.assert_close(jitted(x, mine), large(x, own))
        if n == CALLS - 2:
            graphs = frameloom.stats()["graphs"]
    assert frameloom.stats()["graphs"] == graphs <= 6
    assert jitted.entries[-1].kind == "code"


@torch.no_grad()
def test_one_word_about_it():
    frameloom.reset()
    kept, jitted = [], jit(averages)
    with pytest.warns(RuntimeWarning, match="averages: kept grows with each call") as told:
        for _ in range(CALLS):
            jitted(rand(3), kept)
    assert len(told) == 1


def test_what_is_remembered():
    lengths = _capture.Lengths()
    lengths.add(1)
    assert lengths.known() == [1]
    assert [lengths.is_new(n) for n in (1, 2, 3, 2, 3, 3, 1, 4)] == [
        False, True, True, False, True, True, False, True,
    ]  # fmt: skip
    assert sum(lengths.is_new(n) for n in range(10, 30)) < 8
    assert lengths.grows()
    assert not lengths.grows()
    assert all(lengths.is_new(n) for n in range(30, 60))
    assert lengths.is_new(2)
    # A capture may ask often: calls count, which guards let through.
    assert all(lengths.is_new(5) for _ in range(100))
    lengths.close()
    assert not lengths.is_new(70)
