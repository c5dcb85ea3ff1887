"""Exceptions that plain calls raise."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.public_issues.cases import Cases

cases = Cases()


@cases(193757)
def targets_beyond_1():
    return (
        (lambda t: F.binary_cross_entropy(torch.ones_like(t), t)),
        (torch.ones(4, 4) * 1.5,),
        (torch.ones(4, 4),),
    )


@cases(177630)
def products_of_two_dtypes():
    return lambda a, b: torch.matmul(a, b), (torch.randn(2, 3, 4).half(), torch.randn(2, 4, 5))


@cases(141865)
def linear_of_another_dtype():
    m = nn.Linear(1, 1)
    return m, (torch.randn(1, 1),), (torch.randn(1, 1).half(),)


@cases(150993)
def batch_norm_of_another_dtype():
    m = nn.BatchNorm1d(3).double().eval()
    return m, (torch.randn(4, 3),)


@cases(197807)
def logcumsumexp_of_a_byte():
    return (
        (lambda a: torch.logcumsumexp(a, dim=0)),
        (torch.tensor(0, dtype=torch.uint8),),
        (torch.tensor(1.5),),
    )


@cases(194501)
def negative_beta():
    return (lambda a, b: F.smooth_l1_loss(a, b, beta=-1.0)), (
        torch.tensor([1.0]),
        torch.tensor([0.0]),
    )


@cases(185246)
def chances_beyond_1():
    return lambda p: torch.bernoulli(p), (torch.tensor([0.5, 1.5]),), (torch.tensor([0.0, 1.0]),)


@cases(183769)
def selected_out_of_range():
    def f(x):
        base = x.unsqueeze(1)
        return torch.cat([torch.select(base, 1, 0), torch.select(base, 1, 1)], -1)

    return f, (torch.arange(12.0).reshape(3, 4),)


@cases(182965)
def cholesky_of_an_indefinite_matrix():
    return lambda a: torch.linalg.cholesky(a), (torch.tensor([[1.0, 2.0], [2.0, 1.0]]),)


@cases(100831)
def embedding_out_of_range():
    m = nn.Embedding(1, 1)
    return m, (torch.tensor([[0, 0]]),), (torch.randint(1, 100, (1, 10)),)


@cases(126691)
def index_out_of_range():
    def f(a):
        b = torch.arange(start=1, end=-a.numel() - 1, step=-1)
        return a[b]

    return f, (torch.rand(16, 8),)


@cases(126691)
def computed_index_out_of_range():
    def f(x, y):
        b = torch.arange(x.size(0) - 1) + 3
        return x[b] + y[b]

    return f, (torch.rand(16, 8), torch.rand(16, 8))


@cases(171838)
def huge_upscale_factor():
    return (lambda x: F.pixel_shuffle(x, 4323455642275676160)), (torch.randn(1, 4, 2, 2),)


@cases(195224)
def factors_that_are_not_positive():
    def f(x, n):
        return F.pixel_shuffle(x, n)

    return (
        f,
        (torch.randn(1, 4, 2, 2), 0),
        (torch.randn(1, 4, 2, 2), -2),
        (torch.randn(1, 4, 2, 2), 2),
    )


@cases(196754)
def channels_that_are_not_divisible():
    return (lambda x: F.pixel_shuffle(x, 2)), (torch.randn(1, 5, 4, 4),), (torch.randn(1, 8, 4, 4),)


@cases(196754)
def height_that_is_not_divisible():
    return (
        (lambda x: F.pixel_unshuffle(x, 2)),
        (torch.randn(1, 4, 5, 5),),
        (torch.randn(1, 4, 6, 4),),
    )


@cases(104943, backward=True)
def write_to_what_a_gradient_needs():
    def f(x):
        y = torch.sigmoid(x)
        F.leaky_relu(y, inplace=True)
        y.mul_(2)
        return y

    return f, (torch.randn(4, requires_grad=True),)


@pytest.mark.parametrize("case", cases)
def test_issue(case):
    case.run()
