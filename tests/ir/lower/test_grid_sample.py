"""Images sampled at the positions of a grid, and the grids of affine maps, as loops."""

import math

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.program import Extern
from tests.helpers import check


def is_a_loop(fn, *args, **tolerance):
    report = check(fn, *args, graphs=1, breaks=0, **tolerance)
    return not any(isinstance(s, Extern) for s in report.graphs[0].fused.steps)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_samples(mode, padding, aligned):
    grid = torch.rand(2, 4, 9, 2) * 3 - 1.5
    grid[0, 0, :6] = torch.tensor(
        [[-1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [math.nan, 0.5], [math.inf, -math.inf], [1e30, 9.0]]
    )
    for shape in ((2, 8, 5, 7), (2, 9, 1, 1), (2, 8, 6, 1)):
        for dtype in (torch.float32, torch.float64):
            x, g = torch.randn(shape, dtype=dtype), grid.to(dtype)
            sample = lambda x, g: F.grid_sample(x, g, mode, padding, aligned)
            if padding == "border":
                g = g.nan_to_num(0.5)  # eager reads anything for what is no number
            assert is_a_loop(sample, x, g)
            assert is_a_loop(lambda x, g: sample(x.exp(), g * 0.5) + 1, x[:, :, ::1], g)
            assert is_a_loop(sample, x.transpose(2, 3), g)
            check(sample, x[:, :1], g, graphs=1)


def test_other_samples_are_library_calls():
    x, grid = torch.randn(2, 3, 5, 7), torch.rand(2, 4, 4, 2)
    for options in ({"mode": "bicubic"}, {"mode": "nearest"}, {"padding_mode": "reflection"}):
        assert not is_a_loop(
            lambda x, g, o=options: F.grid_sample(x, g, align_corners=False, **o), x, grid
        )
    sample = lambda x, g: F.grid_sample(x, g, align_corners=False)
    assert not is_a_loop(sample, x.to(memory_format=torch.channels_last), grid)
    check(sample, torch.randn(2, 3, 4, 5, 6), torch.rand(2, 3, 4, 5, 3) * 2 - 1, graphs=1)


@pytest.mark.parametrize("aligned", [False, True])
def test_affine_grids(aligned):
    for size in ((2, 3, 4, 7), (2, 1, 2 if aligned else 1, 5), (2, 3, 3, 4, 5)):
        n = len(size) - 2
        theta = torch.randn(2, n, n + 1)
        assert is_a_loop(lambda t: F.affine_grid(t, size, aligned), theta)
        assert is_a_loop(lambda t: F.affine_grid(t, size, aligned), theta.double())


def test_places_that_are_the_same_for_an_axis():
    """The loop over channels is inside; addresses keep to the tensor at its ends."""

    def f(x, index, weight):
        at = (index.double().cos() * 3 + 4).sqrt().exp().long() % 7
        return x[:, at] * weight, x[:, at.flip(0)][..., ::2]

    check(f, torch.randn(5, 7), torch.arange(40), torch.randn(40), graphs=1)
