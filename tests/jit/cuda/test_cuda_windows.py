"""Pooling, interpolation and what else reads windows, on a GPU."""

import pytest
import torch
import torch.nn.functional as F

import frameloom

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def image(layout=torch.contiguous_format, dtype=torch.float32, shape=(3, 8, 30, 37)):
    return torch.randn(shape, device="cuda").to(dtype).to(memory_format=layout)


LAYOUTS = [torch.contiguous_format, torch.channels_last]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def same(f, *args):
    """Of 16-bit floats, eager rounds weights and factors that are kept wide here."""
    wide = args[0].dtype in (torch.float32, torch.float64)
    step = torch.finfo(args[0].dtype).eps
    tolerance = {"rtol": 1e-4, "atol": 2e-5} if wide else {"rtol": 4 * step, "atol": 4 * step}
    found, eager = frameloom.jit(f)(*args), f(*args)
    for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, eager)), strict=True):
        assert (a.dtype, a.stride()) == (b.dtype, b.stride())
        exact = {"rtol": 0, "atol": 0} if not a.dtype.is_floating_point else tolerance
        torch.testing.assert_close(a, b, equal_nan=True, **exact)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pooling(layout, dtype):
    x = image(layout, dtype)
    x[0, 0, 3:6, 4:9] = float("nan")
    for options in ((2,), (3, 2, 1), (3, 2, 1, 1, True), (2, 1, 0, 2), (5, 1, 2)):
        same(lambda x: F.max_pool2d(x, *options), x)
        same(lambda x: F.max_pool2d(x, *options, return_indices=True), x)
    for options in ((2,), (3, 2, 1), (3, 2, 1, True, False), (3, 2, 0, True), (30,), (7, 1)):
        same(lambda x: F.avg_pool2d(x.relu(), *options), x)
    for size in (1, 5, (7, 11), (40, 41)):
        same(lambda x: F.adaptive_avg_pool2d(x, size), x)
        same(lambda x: F.adaptive_max_pool2d(x, size, return_indices=True), x)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d], ids=str)
def test_volumes(layout):
    x = image(layout, shape=(2, 4, 6, 15, 17))
    same(lambda x: F.max_pool3d(x, 3, 2, 1), x)
    same(lambda x: F.max_pool3d(x, 2, return_indices=True), x)
    same(lambda x: F.avg_pool3d(x, 3, 2, 1), x)
    same(lambda x: F.adaptive_avg_pool3d(x, (2, 4, 5)), x)
    same(lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), x)
    same(lambda x: F.interpolate(x, size=(9, 10, 31)), x)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_interpolation(mode, layout, dtype):
    x = image(layout, dtype)
    y = image(layout, dtype, (3, 8, 60, 74))
    same(lambda x, y: F.interpolate(x.relu(), scale_factor=2, mode=mode) + y, x, y)
    for size in ((60, 74), (13, 50), (1, 1), (90, 37)):
        same(lambda x: F.interpolate(x, size=size, mode=mode), x)
        if mode in ("bilinear", "bicubic"):
            same(lambda x: F.interpolate(x, size=size, mode=mode, align_corners=True), x)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
def test_padding_joins_a_window(mode):
    x = image()
    same(lambda x: F.avg_pool2d(F.pad(x.relu(), (1, 2, 2, 1), mode=mode), 3, 1), x)
