"""Depthwise convolutions as loops, which is what a GPU gets; here on the CPU."""

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.lower import convolution
from frameloom.ir.program import Extern
from tests.helpers import check


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(convolution, "is_cuda", lambda device: True)


def is_a_loop(fn, *args, **tolerance):
    report = check(fn, *args, graphs=1, **tolerance)
    return not any(isinstance(s, Extern) for s in report.graphs[0].fused.steps)


@pytest.mark.parametrize("bias", [None, torch.randn(6)])
@pytest.mark.parametrize(
    "options", [{}, {"padding": 1}, {"stride": 2, "padding": (0, 2)}, {"dilation": (2, 1)}], ids=str
)
def test_each_channel_by_itself(options, bias):
    def f(x, w):
        return F.relu(F.conv2d(x, w, bias, groups=6, **options))

    x, w = torch.randn(2, 6, 9, 11), torch.randn(6, 1, 3, 3)
    assert is_a_loop(f, x, w)
    assert is_a_loop(f, x.to(memory_format=torch.channels_last), w)
    assert is_a_loop(f, x[0], w)


def test_other_numbers_of_dimensions():
    def f(x, w):
        return F.conv1d(x, w, padding=2, groups=4), F.conv1d(x, w, stride=3, groups=4)

    assert is_a_loop(f, torch.randn(2, 4, 20), torch.randn(4, 1, 5))
    g = lambda x, w: F.conv3d(x, w, padding=1, groups=4)
    assert is_a_loop(g, torch.randn(2, 4, 5, 6, 4), torch.randn(4, 1, 3, 2, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_of_16_bit_numbers_are_wide(dtype):
    def f(x, w):
        return F.conv2d(x, w, padding=3, groups=8)

    x, w = torch.randn(2, 8, 14, 14).to(dtype), torch.randn(8, 1, 7, 7).to(dtype)
    assert is_a_loop(f, x, w, rtol=torch.finfo(dtype).eps)


def test_an_infinite_weight_meets_no_padding():
    w = torch.full((2, 1, 3, 3), float("inf"))
    x = torch.rand(1, 2, 4, 4) + 1
    assert is_a_loop(lambda x, w: F.conv2d(x, w, padding=1, groups=2), x, w)


@pytest.mark.parametrize(
    "x, w, groups",
    [((1, 4, 9, 9), (4, 2, 3, 3), 2), ((1, 4, 9, 9), (8, 1, 3, 3), 4), ((1, 4, 9, 9), (4, 1, 1, 1), 4),
     ((1, 4, 9, 9), (4, 1, 8, 8), 4)],
)  # fmt: skip
def test_others_are_left_to_the_library(x, w, groups):
    x, w = torch.randn(x), torch.randn(w)
    assert not is_a_loop(lambda x, w: F.conv2d(x, w, groups=groups), x, w)
