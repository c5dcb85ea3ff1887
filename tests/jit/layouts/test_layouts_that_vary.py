"""A function called with tensors of other layouts than before: whether a result is a view of the argument hangs on these."""

import pytest
import torch

import frameloom
from tests.helpers import jit_for_test
from tests.sweeps.layouts import gradient


def tensor(*sizes, strides):
    return torch.arange(600.0).as_strided(sizes, strides)


def written(x):
    x.contiguous().mul_(3)
    return x


def rows_cleared(x):
    x.reshape(-1)[1:].zero_()
    return x


def turned(x):
    return x.mT.reshape(x.shape[-1], -1)


def stacked(x):
    return torch.stack([x.mT, x.mT])


def is_itself(x):
    return x.contiguous() is x


PLAIN, GAPS = tensor(4, 2, 4, strides=(8, 4, 1)), tensor(4, 4, 4, strides=(32, 8, 2))
SMALL = tensor(4, 1, 4, strides=(4, 4, 1))
CASES = {
    "a copy, then the tensor itself": (written, [SMALL, GAPS, PLAIN]),
    "the same, asked": (is_itself, [SMALL, GAPS, PLAIN]),
    "several sizes of 1": (
        lambda x: x.unsqueeze(0).contiguous(),
        [tensor(4, 4, 4, 4, strides=(64, 16, 4, 1)), tensor(5, 3, 2, 3, strides=(18, 6, 3, 1)), tensor(2, 1, 1, 1, strides=(1, 2, 2, 2))],
    ),
    "a size of 1 beside strides": (
        rows_cleared, [tensor(2, 4, 1, strides=(4, 1, 1)), tensor(2, 2, 3, strides=(12, 6, 1)), tensor(3, 1, 4, strides=(4, 1, 1))],
    ),
    "a batch of one": (turned, [tensor(2, 3, 4, strides=(12, 4, 1)), tensor(1, 3, 2, strides=(6, 2, 1))]),
    "sizes that are equal": (
        turned, [tensor(2, 4, 2, strides=(8, 2, 1)), tensor(3, 3, 4, strides=(3, 1, 0)), tensor(4, 1, 4, strides=(1, 1, 0))],
    ),
    "channels last": (stacked, [tensor(5, 2, 2, 4, strides=(16, 8, 4, 1)), tensor(2, 3, 4, 4, strides=(48, 1, 3, 12))]),
    "a gradient": (
        gradient, [tensor(33, 16, strides=(16, 1)), tensor(7, 7, strides=(14, 2)), tensor(7, 16, strides=(1, 7))],
    ),
    "a gradient of one row": (gradient, [tensor(4, 3, 4, strides=(24, 4, 1)), tensor(1, 5, 4, strides=(40, 4, 1))]),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", CASES)
def test_what_a_call_finds_holds_for_that_call(name, dynamic):
    fn, tensors = CASES[name]

    def seen(f, like):
        x = torch.arange(600.0).as_strided(like.shape, like.stride())
        made = f(x)
        if isinstance(made, bool):
            return made
        shares = made.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        return shares, made.stride(), made.tolist(), x.tolist(), x._version

    frameloom.reset()
    f = jit_for_test(fn, dynamic=dynamic)
    for like in tensors:
        assert seen(f, like) == seen(fn, like), (like.shape, like.stride())


@pytest.mark.parametrize("sizes", [((16, 1), (1, 16)), ((1, 1, 3), (3, 1, 1)), ((3, 4), (1, 3))])
@pytest.mark.parametrize("op", ["masked_scatter", "stack"])
def test_strides_of_dimensions_of_size_1(op, sizes):
    def fn(x):
        if op == "stack":
            return torch.stack([x, x], -1)
        return x.masked_scatter(torch.tensor(1) > 0, torch.ones(20))

    for grad in (False, True):
        x = tensor(*sizes[0], strides=sizes[1]).requires_grad_(grad)
        assert jit_for_test(fn)(x).stride() == fn(x).stride()
