"""Bits that are eager's: special values, 16-bit floats that eager rounds in between, short sums in their order."""

import math

import pytest
import torch

from frameloom import jit

F = torch.nn.functional
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -3.0, 88.0, -88.0, 256.0, math.inf, -math.inf, math.nan]  # fmt: skip
HALVES = torch.float16, torch.bfloat16


def same(given, wanted):
    """The bits, any NaN for another, and the last digit of what is computed by approximation."""
    assert given.dtype == wanted.dtype
    close = torch.isclose(given, wanted, rtol=4 * torch.finfo(wanted.dtype).eps, atol=0)
    good = (given.isnan() & wanted.isnan()) | (close & (given.signbit() == wanted.signbit()))
    assert good.all(), (given[~good][:5], wanted[~good][:5])


def compare(functions, *args):
    with torch.no_grad():
        given = jit(lambda *args: tuple(fn(*args) for fn in functions))(*args)
    for fn, result in zip(functions, given, strict=True):
        same(result, fn(*args))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES])
def test_special_values(dtype):
    each = torch.tensor(SPECIAL * 2, dtype=dtype)
    a, b = (x.flatten() for x in torch.meshgrid(each, each, indexing="ij"))
    exponents = (torch.arange(len(a)) - len(a) // 2) * 3
    compare([torch.nextafter, torch.copysign, torch.atan2, torch.hypot], a, b)
    if dtype not in HALVES:  # whose maximum of 0 and -0 is another one
        compare([torch.fmax, torch.fmin], a, b)
    compare([torch.logaddexp2], a.abs(), b.abs())
    compare([lambda a, e: torch.ldexp(a, e)], a, exponents)
    compare([F.softshrink, F.hardshrink, torch.sign, torch.sgn, torch.round], a)
    compare([lambda a, n=n: a**n for n in (-2, -1, -0.5, 0, 0.5, 2, 3)], a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES])
def test_numbers_given_to_ops(dtype):
    x = torch.tensor(SPECIAL * 4, dtype=dtype)
    compare([lambda x, n=n: F.elu(x, n) for n in (1.0, 0.5, 0.0, -1.0, math.inf, math.nan)], x)
    compare([F.selu, *(lambda x, n=n: F.celu(x, n) for n in (1.0, -2.0, math.inf))], x)
    compare([lambda x, n=n: x.nan_to_num(n) for n in (0.0, -0.0, 1.0, math.inf)], x)


@pytest.mark.parametrize("fn", [torch.sum, torch.mean, torch.nansum, lambda x: x.sum(0)])
def test_sums_of_one_negative_zero(fn):
    compare([fn], torch.tensor([-0.0]))


def test_arguments_that_are_large():
    x = torch.tensor(
        [1e10, 1e100, 1.3e154, 1.4e154, 1e200, 1e300, math.inf, 1.0], dtype=torch.float64
    )
    compare([torch.asinh, lambda x: torch.asinh(-x), torch.acosh], x)


@pytest.mark.parametrize("dtype", HALVES)
def test_quotients_are_rounded_before_they_become_whole(dtype):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    every = every[every.isfinite()]
    near = (torch.arange(1, 1 + len(every)) % 997 / 83 - 6).to(dtype)
    functions = [
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: a // b, lambda a, b: a // 0.3, lambda a, b: 3 // a, lambda a, b: torch.nextafter(a, b),
    ]  # fmt: skip
    compare(functions, every, near)
    compare(functions, near, near.flip(0))


@pytest.mark.parametrize("n", [1, 3, 4, 8])
def test_few_elements_are_added_in_their_order(n):
    x = torch.rand(50, n)
    given = jit(lambda x: (x - x.sum(1, keepdim=True), x * x.prod(1, keepdim=True)))(x)
    assert torch.equal(given[0], x - x.sum(1, keepdim=True))
    assert torch.equal(given[1], x * x.prod(1, keepdim=True))


def test_ranges_of_ints_between_floats():
    def f(x):
        return torch.arange(2.1, -2.9, -1.0, dtype=torch.int64), torch.arange(
            -1.9, 5.5, 1.5, dtype=torch.int32
        )

    for given, wanted in zip(jit(f)(torch.ones(1)), f(torch.ones(1)), strict=True):
        assert torch.equal(given, wanted)


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_moments_of_large_numbers_where_sizes_vary(name, dtype):
    """Squares of them are no numbers of their dtype."""

    def fn(x):
        return getattr(x, name)(1)

    jitted = jit(fn, dynamic=True)
    for rows in (3, 5):
        x = torch.linspace(-1, 1, rows * 4).view(rows, 4)
        for scale in (1, 1e18, 1e30):
            given = (x * scale).to(dtype).requires_grad_()
            assert torch.equal(jitted(given), fn(given))


def test_a_limit_that_is_nan_beside_another_one():
    limits = (math.nan, 0.0), (0.0, math.nan), (-0.0, 0.0), (0.0, -0.0)

    def f(x):
        low = [x.clamp(min=a).clamp(min=b) for a, b in limits]
        return low + [x.clamp(max=a).clamp(max=b) for a, b in limits]

    x = torch.tensor([-1.0, -0.0, 0.0, 2.0, math.nan, math.inf])
    for got, want in zip(jit(f)(x), f(x), strict=True):
        assert [*map(str, got.tolist())] == [*map(str, want.tolist())]
