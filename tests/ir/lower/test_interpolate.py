"""Interpolation as loops."""

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.program import Extern
from tests.helpers import check

X = torch.randn(2, 5, 7, 9)
LAST = X.to(memory_format=torch.channels_last)
LINE = torch.randn(2, 3, 11)
VOLUME = torch.randn(2, 3, 4, 5, 6)
SIZES = [
    {"scale_factor": 2}, {"scale_factor": 3}, {"size": (13, 5)}, {"scale_factor": 0.4}, {"size": (7, 18)}, {"size": (1, 1)},
]  # fmt: skip


def is_a_loop(x, **options):
    """Tolerances: a place of a few dozen pixels is rounded in its sixth digit."""
    report = check(lambda x: F.interpolate(x, **options), x, graphs=1, rtol=1e-4, atol=1e-5)
    return not any(isinstance(s, Extern) for s in report.graphs[0].fused.steps)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest(mode, size):
    for x in (X, LAST, X.bfloat16(), X.double(), (X * 50).byte(), X.transpose(2, 3)):
        assert is_a_loop(x, mode=mode, **size)


@pytest.mark.parametrize("size", SIZES[:5], ids=str)
@pytest.mark.parametrize("aligned", [False, True])
def test_linear(size, aligned):
    for x in (LAST, LAST.double()):
        assert is_a_loop(x, mode="bilinear", align_corners=aligned, **size)
    assert not is_a_loop(X, mode="bilinear", align_corners=aligned, **size)


@pytest.mark.parametrize("size", [*SIZES[:4], {"size": (3, 20)}], ids=str)
@pytest.mark.parametrize("aligned", [False, True])
def test_cubic(size, aligned):
    for x in (X, LAST, X.double()):
        assert is_a_loop(x, mode="bicubic", align_corners=aligned, **size)


def test_lines_and_volumes():
    last = VOLUME.to(memory_format=torch.channels_last_3d)
    for mode in ("nearest", "nearest-exact"):
        assert is_a_loop(LINE, mode=mode, scale_factor=2.5)
        assert is_a_loop(VOLUME, mode=mode, size=(3, 10, 13))
        assert is_a_loop(last, mode=mode, size=(3, 10, 13))
    assert is_a_loop(last, mode="trilinear", size=(3, 10, 13))


def test_given_scales():
    for scale in (1.5, 2.6, (0.7, 1.3)):
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
            is_a_loop(LAST, mode=mode, scale_factor=scale, recompute_scale_factor=False)


def test_what_is_not_lowered():
    assert not is_a_loop(LAST, mode="bilinear", scale_factor=0.5, antialias=True)
    assert not is_a_loop((LAST * 50).byte(), mode="bilinear", scale_factor=2)


def test_neighbours_join():
    y = torch.randn(2, 5, 14, 18).to(memory_format=torch.channels_last)
    report = check(lambda x, y: F.interpolate(x.relu(), scale_factor=2) + y, LAST, y, graphs=1)
    assert len(report.kernels) == 1
