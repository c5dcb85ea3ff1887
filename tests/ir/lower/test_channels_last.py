"""Convolutions on channels-last tensors, forced on the CPU: what the program sees is as ever."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from frameloom.ir.lower.layout import channels_last
from frameloom.ir.program import Extern, Kernel
from tests.helpers import check

X, W, B = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch):
    monkeypatch.setattr(channels_last, "everywhere", True)
    with torch.no_grad():
        yield


class Net(nn.Module):
    """A bit of everything that image models are made of."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.wide = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.gate, self.up = nn.Conv2d(8, 8, 1), nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 2)
        x = F.relu(self.wide(x)) + x
        y = F.hardswish(self.deep(x))
        y = y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        y = F.interpolate(self.up(torch.cat([x, y], 1)), scale_factor=0.5)
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


@pytest.mark.parametrize("training", [False, True])
def test_a_network(training):
    """Converted are the input and the weights that are larger than one pixel of one channel; nothing in between."""
    report = check(Net().train(training), torch.randn(2, 3, 16, 16), graphs=1)
    program = report.graphs[0].fused
    kernels = [s.name for s in program.steps if isinstance(s, Kernel)]
    assert sum("relayout" in name for name in kernels) == 4
    for step in program.steps:
        if isinstance(step, Extern) and step.target == channels_last.CONVOLUTION:
            x, weight = step.args[:2]
            assert x.strides == channels_last.channels_last_strides(x.shape)
            assert weight.strides == channels_last.channels_last_strides(weight.shape)


@pytest.mark.parametrize(
    "fn",
    [
        lambda y: y,
        lambda y: (y, y.relu(), y.view(2, -1)),
        lambda y: (y + 1).view(2, -1),
        lambda y: (y + 1).relu().view(2, -1) * 2,
        lambda y: y.flatten(2).transpose(1, 2) + 1,
        lambda y: (y + 1).view(2, 2, 2, 6, 6).sum(1),
        lambda y: (y + 1)[:, :, ::2].reshape(-1) * 2,
        lambda y: (y * 2).chunk(2, 1)[1].contiguous().view(-1) * 3,
        lambda y: (y + 1).split(2, 2)[1].permute(0, 2, 3, 1).reshape(-1, 4) @ W[0, :, 0].new_ones(4, 3),
        lambda y: (y + 1).view(torch.int32) + 1,
    ],
    ids=range(10),
)  # fmt: skip
def test_views(fn):
    check(lambda x, w: fn(F.conv2d(x, w)), X, W, graphs=1)


@pytest.mark.parametrize(
    "fn",
    [
        lambda y: (y + 1).as_strided((3, 4), (1, 3)) * 2,
        lambda y: (y + 1)[:, 1:, ::2].as_strided((3, 4), (1, 3), 5) * 2,
        lambda y: torch.sort(y * 2, 1)[0] + 1,
        lambda y: torch.cumsum(y[:, ::2, 1:], 1),
        lambda y: F.max_pool2d(y, 2, return_indices=True),
        lambda y: F.dropout(y, 0.5) + torch.rand_like(y + 1),
        lambda y: torch.linalg.vector_norm(y, dim=1).sort(-1)[0],
    ],
    ids=["strides", "strides of a part", "sort", "cumsum", "pool", "random", "norm"],
)
def test_where_strides_matter(fn):
    check(lambda x, w: fn(F.conv2d(x, w)), X, W, graphs=1)


def test_written_inputs():
    def f(x, w, out):
        y = F.conv2d(x, w)
        out.copy_(y)
        x.mul_(2)
        return F.interpolate(y, scale_factor=2) + F.conv2d(x, w).mean()

    check(f, X, W, torch.zeros(2, 4, 6, 6), graphs=1)


@pytest.mark.parametrize("bias", [None, B])
def test_bias_and_transposed(bias):
    check(lambda x, w: F.conv_transpose2d(F.conv2d(x, w, bias), w, stride=2), X, W, graphs=1)
    check(lambda x, w: F.conv2d(x, w, bias).relu(), X, W, graphs=1)


@pytest.mark.parametrize("size", [(1, 3, 3, 3), (2, 3, 3, 8), (2, 3, 8, 3)])
def test_sizes_of_one(size):
    check(lambda x, w: F.conv2d(x, w, B), torch.randn(size), W, graphs=1)
    check(lambda x, w: F.conv2d(x, w)[:, :1].relu(), torch.randn(size), W, graphs=1)


def test_given_channels_last():
    x = X.to(memory_format=torch.channels_last)
    check(lambda x, w: (F.conv2d(x, w), F.conv2d(x, w).relu()), x, W, graphs=1)
    check(lambda x, w: F.conv2d(x, w).view(2, -1), X[:, :, ::2, ::2], W, graphs=1)


@pytest.mark.parametrize("bias", [None, B])
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"padding": 1}], ids=str)
def test_single_pixels_are_matrix_products(bias, options):
    w = W[:, :, :1, :1]

    def f(x, w):
        y = F.conv2d(x, w, bias, **options)
        return y, F.conv2d(x, w, bias, **options).relu(), F.conv2d(x + 1, w, **options)[:, 1:] * 2

    report = check(f, X, w, graphs=1)
    calls = [s for s in report.graphs[0].fused.steps if isinstance(s, Extern)]
    assert any(s.target == channels_last.PRODUCT for s in calls) == (not options)
