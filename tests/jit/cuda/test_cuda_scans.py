"""Cumulative sums and products on a GPU."""

import pytest
import torch

import frameloom

pytestmark = pytest.mark.gpu
SHAPES = [(1,), (7,), (5000,), (300, 40), (64, 1024), (33, 8191), (3, 8192), (2, 3, 33), (2000, 16)]


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def error(found, exact):
    return (found.double() - exact).abs().max().item()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_are_as_accurate_as_eagers(shape, dtype):
    x = torch.rand(shape, device="cuda").to(dtype)
    f = lambda x: x.cumsum(-1)
    exact = x.double().cumsum(-1)
    found, eager = frameloom.jit(f)(x), f(x)
    assert (found.dtype, found.stride()) == (eager.dtype, eager.stride())
    step = torch.finfo(dtype).eps * exact.abs().max().item()
    assert error(found, exact) <= 1.5 * error(eager, exact) + step


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_any_dimension(dim):
    x = torch.rand(40, 60, 50, device="cuda")
    f = lambda x: (x.cumsum(dim), (x + 0.5).cumprod(dim))
    torch.testing.assert_close(frameloom.jit(f)(x), f(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64], ids=str)
def test_integers(dtype):
    x = torch.randint(0, 3, (50, 3000), device="cuda").to(dtype)
    f = lambda x: (x.cumsum(-1), x.cumprod(-1))
    for found, eager in zip(frameloom.jit(f)(x), f(x), strict=True):
        assert found.dtype == eager.dtype
        assert torch.equal(found, eager)


def test_special_values():
    x = torch.randn(4, 50, device="cuda")
    x[0, 7], x[1, 9], x[1, 20], x[2, 3] = torch.tensor(
        [float("nan"), float("inf"), -float("inf"), 0.0]
    )
    f = lambda x: (x.cumsum(-1), x.cumprod(-1))
    torch.testing.assert_close(frameloom.jit(f)(x), f(x), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_neighbours():
    x, y = torch.randn(2, 300, 1000, device="cuda").unbind()
    for f in (
        lambda x, y: torch.exp((x * 2 + 1).cumsum(-1) * 0.01) + y,
        lambda x, y: torch.softmax(x, -1).cumsum(-1) + y,
        lambda x, y: x.cumsum(-1).flip(-1) * y,
        lambda x, y: torch.relu(x.cumsum(-1)).cumsum(0) + y,
        lambda x, y: x.cumsum(-1)[:, 10:30].sum(-1),
    ):
        torch.testing.assert_close(frameloom.jit(f)(x, y), f(x, y), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "shape", [(7,), (5000,), (300, 40), (64, 1024), (3, 8192), (3, 20000)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_extremes_and_their_places(shape, dtype):
    x = torch.randint(0, 50, shape, device="cuda").to(dtype)
    f = lambda x: (*x.cummax(-1), *x.cummin(-1))
    for found, eager in zip(frameloom.jit(f)(x), f(x), strict=True):
        assert found.dtype == eager.dtype
        assert torch.equal(found, eager)


def test_extremes_of_what_is_no_number():
    x = torch.randn(4, 50, device="cuda")
    x[0, 7] = x[0, 20] = x[1, 0] = torch.nan
    x[2], x[3, 9] = -torch.inf, torch.inf
    f = lambda x: (*x.cummax(-1), *x.cummin(-1))
    for found, eager in zip(frameloom.jit(f)(x), f(x), strict=True):
        torch.testing.assert_close(found, eager, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dim", [0, 1])
def test_logarithms_of_sums(dim):
    x = torch.randn(200, 100, device="cuda") * 30
    x[3, 1], x[:5, 2], x[20, 2] = torch.nan, -torch.inf, torch.inf
    f = lambda x: x.logcumsumexp(dim)
    torch.testing.assert_close(frameloom.jit(f)(x), f(x), rtol=1e-5, atol=1e-5, equal_nan=True)
