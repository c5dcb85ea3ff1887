"""Pooling as loops."""

import pytest
import torch
import torch.nn.functional as F

from frameloom import jit
from frameloom.ir.program import Extern
from tests.helpers import check

X = torch.randn(2, 3, 9, 11)
VOLUME = torch.randn(2, 3, 5, 6, 7)


def is_a_loop(fn, *args):
    report = check(fn, *args, graphs=1)
    return not any(isinstance(s, Extern) for s in report.graphs[0].fused.steps)


@pytest.mark.parametrize("indices", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        (2,), (3, 2, 1), ((2, 3), (1, 2), (1, 0)), (2, 1, 0, 2), (3, 2, 1, 1, True), (2, 3, 1, 3, True),
    ],
    ids=str,
)  # fmt: skip
def test_greatest(options, indices):
    def f(x):
        return F.max_pool2d(x, *options, return_indices=indices)

    for x in (X, X[0], X.bfloat16(), X.round(), X.mT):
        assert is_a_loop(f, x)
    assert is_a_loop(f, X.to(memory_format=torch.channels_last)) == (not indices)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
def test_special_values(value):
    def f(x):
        return F.max_pool2d(x, 3, 2, 1, return_indices=True)

    x = X.clone()
    x[0, :, 2:5, 3:6] = x[1, :, ::3] = value
    assert is_a_loop(f, x)
    assert is_a_loop(f, torch.full_like(X, value))


@pytest.mark.parametrize(
    "options",
    [
        (2,), (3, 2, 1), (3, 2, 1, False, False), (3, 2, 0, True), (3, 2, 1, True), (3, 2, 1, True, False),
        (3, 2, 1, True, False, 5), (7,), ((9, 6), 1, (4, 3), False, False),
    ],
    ids=str,
)  # fmt: skip
def test_mean(options):
    for x in (X, X[0], X.bfloat16(), X.to(memory_format=torch.channels_last)):
        assert is_a_loop(lambda x: F.avg_pool2d(x, *options), x)


def test_lines_and_volumes():
    for x in (VOLUME, VOLUME.to(memory_format=torch.channels_last_3d)):
        assert is_a_loop(lambda x: F.max_pool3d(x, (2, 3, 2), 2, 1), x)
        assert is_a_loop(lambda x: F.avg_pool3d(x, 3, 2, 1, True, False), x)
        assert is_a_loop(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), x)
    assert is_a_loop(lambda x: F.max_pool3d(x, 3, return_indices=True), VOLUME)
    assert is_a_loop(lambda x: F.adaptive_max_pool3d(x, 3, return_indices=True), VOLUME)
    assert is_a_loop(lambda x: F.max_pool1d(x, 3, 2, 1), X[0])
    assert is_a_loop(lambda x: F.avg_pool1d(x, 3, 2, 1), X[0])


@pytest.mark.parametrize("size", [3, (3, 11), (7, 4), (1, 5), (12, 13)], ids=str)
def test_windows_that_divide_the_image(size):
    for x in (X, X[0], X.bfloat16(), X.to(memory_format=torch.channels_last)):
        assert is_a_loop(lambda x: F.adaptive_avg_pool2d(x, size), x)
        assert is_a_loop(lambda x: F.adaptive_max_pool2d(x, size), x)
    assert is_a_loop(lambda x: F.adaptive_max_pool2d(x, size, return_indices=True), X)


def test_large_windows():
    x = X.repeat(1, 1, 2, 2)
    x[0, 0, 3, 3] = float("nan")
    assert is_a_loop(lambda x: F.max_pool2d(x, 13, 1, 6), x)
    assert not is_a_loop(lambda x: F.max_pool2d(x, 13, 1, 6, return_indices=True), x)


def test_windows_of_padding_only_are_left_to_the_library():
    assert not is_a_loop(lambda x: F.max_pool2d(x, (1, 2), 1, (0, 1), (1, 5)), X[..., :4])


def test_integers_have_no_pooling_in_one_dimension():
    check(lambda x: F.max_pool1d(x, 3), torch.arange(24).view(2, 12))
    check(lambda x: F.max_pool2d(x, 3), torch.arange(36).view(1, 6, 6), graphs=1)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_first_of_zeros_of_both_signs(rank):
    pool = getattr(F, f"max_pool{rank}d")
    x = torch.zeros(2, 2, *[8] * rank)
    x[torch.rand_like(x) < 0.5] = -0.0
    wanted, found = pool(x, 3, 2, 1), jit(lambda x: pool(x, 3, 2, 1))(x)
    assert torch.equal(wanted.signbit(), found.signbit())
