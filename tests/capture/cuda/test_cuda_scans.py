"""Cumulative sums and products on CUDA where there is no GPU: captured on fakes, fused, and run under Triton's interpreter."""

import pytest
import torch

from frameloom.codegen.schedule.partition import launches
from frameloom.ir.program import Kernel
from tests.capture.cuda.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu
from tests.capture.cuda.test_cuda_random import Plain, captured, run
from tests.codegen import triton_kernels

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture


def check(f, *args, kernels=1, scans=1, rtol=1e-5, atol=1e-5):
    """One launch with as many scans, and what the plain call gives."""
    program = captured(f, *args)
    found, expected = run(program, args, Plain(), {}), f(*args)
    for r, e in zip(found, expected if isinstance(expected, tuple) else [expected], strict=True):
        assert (r.dtype, r.stride()) == (e.dtype, e.stride())
        torch.testing.assert_close(r, e, rtol=rtol, atol=atol, equal_nan=True)
    assert all(isinstance(s, Kernel) for s in program.steps)
    parts = [k for s in program.steps for k in launches(s, triton_kernels.TINY)]
    texts = [s.text for s in triton_kernels.generate(parts, triton_kernels.TINY)]
    assert len(parts) == kernels
    assert sum(t.count("tl.associative_scan") for t in texts) == scans


@pytest.mark.parametrize(
    "shape", [(1,), (7,), (1000,), (3, 40), (5, 1), (2, 3, 33), (70, 64)], ids=str
)
def test_sums_of_rows(shape):
    x = torch.randn(shape)
    check(lambda x: x.cumsum(-1), x, scans=int(shape[-1] > 1))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_any_dimension(name, dim):
    x = torch.randn(4, 6, 20)
    check(lambda x: getattr(torch, name)(x, dim), x)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_integers(dtype):
    x = torch.randint(0, 2, (5, 300)).to(dtype)
    check(lambda x: (x.cumsum(-1), x.cumprod(-1)), x, scans=2)


def test_half_precision_is_added_up_in_single():
    x = torch.rand(3, 2000).half()
    check(lambda x: x.cumsum(-1), x, rtol=2e-3)
    x = torch.rand(2, 900, dtype=torch.float64)
    check(lambda x: x.cumsum(-1), x, rtol=1e-14)
    check(lambda x: x.half().cumsum(-1, dtype=torch.float32), x)


def test_special_values():
    x = torch.randn(4, 50)
    x[0, 7], x[1, 9], x[1, 20], x[2, 3] = torch.tensor(
        [float("nan"), float("inf"), -float("inf"), 0.0]
    )
    check(lambda x: (x.cumsum(-1), x.cumprod(-1)), x, scans=2)


def test_what_comes_before_and_after_joins():
    x, y = torch.randn(6, 100), torch.randn(6, 100)
    check(lambda x, y: torch.exp((x * 2 + 1).cumsum(-1) * 0.1) + y, x, y)
    check(lambda x: torch.softmax(x, -1).cumsum(-1) < 0.9, x)
    check(lambda x: torch.sigmoid(torch.tanh(x) * 3 - 1).cumsum(0).exp(), x)
    check(lambda x: x.cumsum(-1) / x.abs().sum(-1, keepdim=True), x)


def test_a_sum_of_sums():
    x = torch.randn(6, 50)
    check(lambda x: torch.relu(x.cumsum(-1)).cumsum(-1), x, kernels=2, scans=2)


def test_sums_along_two_dimensions():
    x = torch.randn(6, 50)
    check(lambda x: x.cumsum(0).cumsum(1), x, kernels=2, scans=2)


def test_sums_read_elsewhere():
    x = torch.randn(6, 50)
    check(lambda x: x.cumsum(-1).flip(-1) * 2, x, kernels=2)
    check(lambda x: x.cumsum(-1).amax(-1), x, kernels=2)
    check(lambda x: x.cumsum(-1).narrow(1, 10, 20) + 1, x, kernels=2)
    check(lambda x: x.cumsum(-1).t() + x.t(), x)


def test_long_rows_are_the_librarys():
    x = torch.randn(2, 10000)
    program = captured(lambda x: x.cumsum(-1) + 1, x)
    assert any(getattr(s, "target", "") == "aten.cumsum.default" for s in program.steps)
