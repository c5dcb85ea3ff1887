"""`F.pad` by all small amounts: what is cropped on one side and filled on the other, whatever is left between."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import frameloom
from tests.jit.gradients.training import caught

AMOUNTS = range(-3, 4)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_what_is_cropped_and_filled(length, dynamic):
    # Eager crops before it fills.
    pairs = [p for p in itertools.product(AMOUNTS, AMOUNTS) if sum(min(n, 0) for n in p) >= -length]

    def fn(x):
        made = [F.pad(x, p, value=3.0) * 2 for p in pairs]
        return made + [F.pad(x.t(), (0, 0, *p)) for p in pairs]

    found = []
    for side in (fn, frameloom.jit(fn, dynamic=dynamic)):
        x = (torch.arange(2.0 * length).view(2, length) + 1).requires_grad_()
        made = side(x)
        sum(y.square().sum() for y in made).backward()
        found.append([*made, x.grad])
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("pair", [(-2, 1), (1, -2), (3, -3)])
def test_more_than_there_is_cannot_be_cropped(pair):
    fn = lambda x: F.pad(x, pair)
    jitted = frameloom.jit(fn)
    for length in (4, 3, 1, 5):
        x = torch.ones(2, length)
        assert str(caught(fn, x)) == str(caught(jitted, x))
