"""A comparison of a size is no condition where the rest of `and` or `or` decides."""

import pytest
import torch

import frameloom
from frameloom import jit

SHAPES = [(7, 3), (5, 2), (1, 4), (1, 1), (3, 2), (2, 9), (1, 5)]


def kept(x, mask, causal):
    both = x.shape[0] > 1 and mask is None and causal
    return x * (2 if both else 3)


def branched(x, mask, causal):
    if x.shape[0] > 1 and mask is None and not causal:
        return x + 5
    return x * 2


def not_none(x, mask, causal):
    if x.shape[0] > 1 and mask is not None:
        return x + mask
    return x * 2


def either(x, mask, causal):
    if x.shape[0] == 1 or causal:
        return x + 1
    return x * 2


def either_kept(x, mask, causal):
    alone = x.shape[0] == 1 or not causal
    return x * (2 if alone else 3)


def chained(x, mask, causal):
    small = 0 < x.shape[0] < 2 and mask is None
    return x * (2 if small else 3)


def in_a_loop(x, mask, causal):
    while x.shape[0] > 1 and mask is not None:
        x = x[1:]
    return x * 2


CASES = {kept: (3, 2, 2), branched: (2, 3, 2), not_none: (2, 2, 3), either: (2, 3, 2), either_kept: (3, 2, 3), chained: (4, 4, 4), in_a_loop: (2, 2, 5)}  # fmt: skip


@torch.no_grad()
def test_what_an_operand_gives_is_the_result():
    def fn(x, number, flag):
        return x * 2, x.shape[0] > 1 and number and flag

    jitted = jit(fn)
    for shape in SHAPES:
        x = torch.rand(shape)
        for number in (0, 1):
            found, want = jitted(x, number, False), fn(x, number, False)
            assert (type(found[1]), found[1]) == (type(want[1]), want[1])


@pytest.mark.parametrize("fn", CASES)
@torch.no_grad()
def test_the_rest_decides(fn):
    cases = [(None, True), (None, False), (torch.tensor(3.0), True)]
    for (mask, causal), graphs in zip(cases, CASES[fn], strict=True):
        frameloom.reset()
        jitted = jit(fn)
        for shape in SHAPES:
            x = torch.rand(shape)
            torch.testing.assert_close(jitted(x, mask, causal), fn(x, mask, causal))
        assert frameloom.stats()["graphs"] <= graphs, (mask, causal)
