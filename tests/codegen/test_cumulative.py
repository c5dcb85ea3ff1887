"""Cumulative ops on the CPU: one pass, with what comes before and after."""

import math

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.cumulative import prefix
from frameloom.ir.ops import Op
from frameloom.ir.program import Extern, Kernel
from frameloom.ir.substitute import topological
from tests.helpers import check

X = torch.randn(5, 37, 9)


def is_a_loop(fn, *args, **options):
    report = check(fn, *args, graphs=1, breaks=0, **options)
    return not any(isinstance(s, Extern) for s in report.graphs[0].fused.steps)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("x", [X, X.transpose(0, 2), X[:, ::2], X[:, :1], X[:, :8]], ids=lambda x: str(x.stride()))  # fmt: skip
def test_along_any_dimension(x, dim):
    assert is_a_loop(lambda x: x.cumsum(dim), x, rtol=0, atol=0)
    assert is_a_loop(lambda x: x.cumprod(dim), x, rtol=0, atol=0)
    assert is_a_loop(lambda x: (x.cummax(dim).values, x.cummin(dim).values), x, rtol=0, atol=0)
    check(lambda x: (*x.cummax(dim), *x.cummin(dim)), x.round(), graphs=1, rtol=0, atol=0)


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool],
    ids=str,
)  # fmt: skip
def test_of_any_dtype(dtype):
    x = (X * 3).to(dtype)
    for dim in (0, 1):
        check(lambda x: (x.cumsum(dim), x.cumprod(dim)), x, graphs=1)
        check(lambda x: (*x.cummax(dim), *x.cummin(dim)), x, graphs=1)
    check(lambda x: x.cumsum(0, dtype=torch.int32), x, graphs=1)


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000])
def test_of_any_length(n):
    x = torch.randn(3, n)
    assert is_a_loop(lambda x: (x.cumsum(1), x.cummax(1).values), x, rtol=0, atol=0)
    assert is_a_loop(lambda x: x[0].cumsum(0), x, rtol=0, atol=0)


def test_of_what_is_no_number():
    x = torch.randn(6, 40)
    x[0, 7], x[1, 0], x[1, 3] = math.nan, math.nan, math.inf
    x[2, 3], x[2, 20] = math.inf, -math.inf
    x[3], x[4] = -math.inf, -0.0
    check(lambda x: (x.cumsum(1), x.cumprod(1), *x.cummax(1), *x.cummin(1)), x, graphs=1)
    check(lambda x: (x.cumsum(0), x.cumprod(0), *x.cummax(0), *x.cummin(0)), x, graphs=1)


def test_products_that_come_to_nothing_stay_there():
    x = torch.cat([torch.full((40,), 1e-30), torch.full((40,), 1e30)])
    check(lambda x: (x.cumprod(0), x.flip(0).cumprod(0)), x, graphs=1)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 2 + 1).cumsum(1) - x,
        lambda x: x.softmax(1).cumsum(1) > 0.5,
        lambda x: x.exp().cumsum(1) / x.exp().cumsum(1).sum(1, keepdim=True),
        lambda x: x.cumsum(1) / x.exp().sum(1, keepdim=True),  # far from 0
        lambda x: x.cumsum(1).cumsum(1),
        lambda x: x.cumsum(1).cumsum(0),
        lambda x: x.cumsum(2).cumsum(1).cumsum(0),
        lambda x: x.cumsum(1)[:, 1:] - x.cumsum(1)[:, :-1],
        lambda x: x.cumsum(1).flip(1),
        lambda x: x.flip(1).cumsum(1).flip(1),
        lambda x: x.cumsum(1)[:, -1],
        lambda x: x.cumsum(1).transpose(0, 1) * x.transpose(0, 1),
        lambda x: x.cumsum(1).reshape(-1) + 1,
        lambda x: x.cumsum(1).max(),
        lambda x: x.cumsum(1).softmax(2),
        lambda x: (x.cumsum(1), x.cumsum(1).exp(), x.cummax(1).values.sum(0)),
        lambda x: x[:, :, 0].cumsum(1)[:, :, None] + x,
        lambda x: (x > 0).cumsum(0) * x,
        lambda x: (x - x.mean(1, keepdim=True)).cumsum(1),
    ],
)  # fmt: skip
def test_beside_other_ops(fn):
    assert is_a_loop(fn, X)
    assert is_a_loop(fn, X.transpose(0, 2))


def test_gradients():
    def f(x):
        (x.cumsum(1) * x.cummax(1).values).sum().backward()
        return x.grad

    check(f, X.clone().requires_grad_())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: x.cumsum(1).gather(1, i) + 1,
        lambda x, i: F.pad(x.cumsum(1), (0, 0, 1, 0)),
        lambda x, i: x.cumsum(1)[:, i[0, :, 0]],
        lambda x, i: torch.cat([x.cumsum(1), x], 1),
        lambda x, i: x.cumsum(1).roll(2, 1) * x,
    ],
)
def test_what_reads_it_anywhere_does_not_repeat_it(fn):
    report = check(fn, X, torch.randint(0, 37, (5, 37, 9)), graphs=1)
    stores = [s for k in report.graphs[0].fused.steps if isinstance(k, Kernel) for s in k.stores]
    folds = [n for n in topological(s.value for s in stores) if n.op is Op.REDUCE and n.arg.kind == "sum"]  # fmt: skip
    assert folds and all(prefix(n) is not None for n in folds)


def test_reductions_of_reductions_before_it():
    def fn(x):
        y = x.softmax(-1)
        return y, (y.mean(0, keepdim=True) + y).cumsum(0)

    check(fn, torch.randn(13), graphs=1)
    check(fn, torch.randn(130, dtype=torch.float64), graphs=1)
