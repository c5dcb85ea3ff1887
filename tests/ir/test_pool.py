"""Pooling as loops, which is what a GPU gets; here on the CPU."""

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.lower import pool
from frameloom.ir.program import Extern
from tests.helpers import check

X = torch.randn(2, 3, 9, 11)


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(pool, "is_cuda", lambda device: True)


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

    for x in (X, X[0], X.bfloat16(), X.round(), X.to(memory_format=torch.channels_last)):
        assert is_a_loop(f, x)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
def test_special_values(value):
    def f(x):
        return F.max_pool2d(x, 3, 2, 1, return_indices=True)

    x = X.clone()
    x[0, :, 2:5, 3:6] = x[1, :, ::3] = value
    assert is_a_loop(f, x)
    assert is_a_loop(f, torch.full_like(X, value))


@pytest.mark.parametrize(
    "options, loop",
    [((2,), True), ((3, 2, 1), True), ((3, 2, 1, False, False), False), ((3, 2, 0, True), False),
     ((3, 2, 1, True, False, 5), True), ((5,), False)],
)  # fmt: skip
def test_mean(options, loop):
    for x in (X, X[0], X.bfloat16()):
        assert is_a_loop(lambda x: F.avg_pool2d(x, *options), x) == loop


def test_large_windows_are_left_to_the_library():
    assert not is_a_loop(lambda x: F.max_pool2d(x, 5), X)
