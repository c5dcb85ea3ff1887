"""Windows as columns, and sums of columns, as loops."""

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.program import Extern
from tests.helpers import check

X = torch.randn(2, 3, 9, 11)
WINDOWS = [
    {"kernel_size": 3}, {"kernel_size": (2, 3), "stride": (2, 3)}, {"kernel_size": 3, "padding": 1, "stride": 2},
    {"kernel_size": (3, 2), "dilation": (2, 3), "padding": (1, 2)}, {"kernel_size": 3, "dilation": 2, "stride": 3, "padding": 2},
    {"kernel_size": (9, 1), "stride": 4}, {"kernel_size": 2, "stride": 3},
]  # fmt: skip


def is_a_loop(fn, x, **tolerance):
    report = check(fn, x, graphs=1, breaks=0, **tolerance)
    return not any(isinstance(s, Extern) for s in report.graphs[0].fused.steps)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows(window):
    last = X.to(memory_format=torch.channels_last)
    for x in (X, X.bfloat16(), X.double(), last, X.transpose(2, 3), X > 0, X[0]):
        assert is_a_loop(lambda x: F.unfold(x, **window), x, rtol=0, atol=0)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_sums_of_windows(window):
    for x in (X, X.double(), X[0]):
        columns = F.unfold(x, **window)
        assert is_a_loop(lambda c: F.fold(c, (9, 11), **window), columns, rtol=0, atol=0)
    columns = F.unfold(X, **window).transpose(1, 2).contiguous().transpose(1, 2)
    assert is_a_loop(lambda c: F.fold(c, (9, 11), **window).exp(), columns)


def test_too_many_windows_for_a_loop():
    assert not is_a_loop(lambda c: F.fold(c, (9, 11), 9, padding=4), F.unfold(X, 9, padding=4))


def test_gradients():
    def f(x):
        F.fold(F.unfold(x.sin(), 3, padding=1), (9, 11), 3, padding=1).pow(2).sum().backward()
        return x.grad

    check(f, X.clone().requires_grad_())
