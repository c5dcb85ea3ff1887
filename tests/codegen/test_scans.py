"""Cumulative ops as a GPU does them, interpreted on the CPU, against eager."""

import pytest
import torch

pytest.importorskip("triton")

from frameloom.codegen.schedule.partition import launches
from frameloom.codegen.triton.chip import H200
from frameloom.codegen.triton.module import generate
from frameloom.ir.program import Kernel
from frameloom.runtime.build.triton_compiler import build
from tests.capture.cuda.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu, lowered
from tests.codegen.test_scatter import by_triton, execute

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture


def check(fn, x, rtol=1e-5, atol=1e-5):
    program, steps = lowered(fn, x)
    assert set(steps) == {"cuda:0"}, steps
    expected = fn(x)
    found = execute(program, [x.clone()], by_triton)
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == e.dtype
        torch.testing.assert_close(f, e, rtol=rtol, atol=atol, equal_nan=True)


def extremes(x):
    return *x.cummax(-1), *x.cummin(-1)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8], ids=str
)
@pytest.mark.parametrize("shape", [(7,), (3, 40), (2, 300)], ids=str)
def test_extremes_and_their_places(dtype, shape):
    # Small integers: many are equal.
    check(extremes, torch.randint(0, 9, shape).to(dtype))


def test_extremes_of_what_is_no_number():
    x = torch.randn(4, 50)
    x[0, 7], x[0, 20], x[1, 0], x[1, 3] = torch.nan, torch.nan, torch.nan, torch.inf
    x[2, 5:9] = -torch.inf
    x[3] = -torch.inf
    check(extremes, x)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_extremes_along_any_dimension(dim):
    x = torch.randn(5, 6, 9)
    check(lambda x: tuple((x * 2).cummax(dim)), x)


def test_logarithms_of_sums():
    x = torch.randn(3, 200) * 30
    x[1, 3], x[2, :5], x[2, 20] = torch.nan, -torch.inf, torch.inf
    check(lambda x: x.logcumsumexp(-1), x)
    check(lambda x: (x.sin().logcumsumexp(0) + 1).exp(), x, 1e-4, 1e-4)


def test_a_position_of_a_cumulative_op():
    x = torch.randn(3, 20)
    check(lambda x: x.cummax(1).values.select(1, 5), x)
    check(lambda x: x.logcumsumexp(1).select(1, 19), x)


@pytest.mark.parametrize("fn", [extremes, lambda x: x.logcumsumexp(-1)], ids=["max", "log"])
def test_kernels_become_machine_code(fn):
    program, _ = lowered(fn, torch.randn(3, 300))
    made = [k for s in program.steps if isinstance(s, Kernel) for k in launches(s, H200)]
    sources = generate(made, H200)
    assert all("associative_scan" in s.text for s in sources)
    assert all(build(sources, 90))


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (torch.int32, 1 << 30),
        (torch.int32, 65536),
        (torch.int64, (1 << 33) + 1),
        (torch.int16, 30000),
        (torch.uint8, 200),
        (torch.float64, 0.1),
        (torch.bfloat16, 3.0),
    ],
    ids=str,
)
def test_of_one_number_everywhere(dtype, number):
    def folds(x):
        same = torch.full_like(x, number)
        return (
            same.cumsum(1), same.cumprod(1), same.prod(1), same.sum(1), *same.cummax(1), *same.max(1),
        )  # fmt: skip

    check(folds, torch.ones(2, 4, dtype=dtype), rtol=1e-15 if dtype is torch.float64 else 0, atol=0)
    check(folds, torch.ones(2, 5, dtype=dtype), rtol=1e-15 if dtype is torch.float64 else 0, atol=0)
