"""Losses with weights and margins, distances, norms that are limited: as loops."""

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.program import Extern
from tests.helpers import check

X, T, W = torch.randn(6, 9), torch.randn(6, 9), torch.rand(9)
LABELS = torch.tensor([0, 8, 3, 3, 1, 7])


def is_a_loop(fn, *args):
    report = check(fn, *args, graphs=1, breaks=0)
    return not any(isinstance(s, Extern) for s in report.graphs[0].fused.steps)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses(reduction):
    r = reduction
    for fn, *args in [
        (lambda x, t: F.soft_margin_loss(x, t, reduction=r), X * 9, T.sign()),
        (lambda x, t: F.soft_margin_loss(x, t, reduction=r), X.bfloat16(), T.bfloat16()),
        (lambda x, t, w: F.binary_cross_entropy(x, t, w, reduction=r), X.sigmoid(), T.sigmoid(), W),
        (
            lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, w, pos_weight=w + 1, reduction=r),
            X * 9, T.sigmoid(), W,
        ),
        (lambda x, y: F.multi_margin_loss(x, y, reduction=r), X, LABELS),
        (lambda x, y, w: F.multi_margin_loss(x, y, 2, 0.3, w, reduction=r), X, LABELS, W),
        (lambda x, y: F.multi_margin_loss(x[0], y[1], reduction=r), X, LABELS),
        (lambda x, y: F.multi_margin_loss(x[0], y[1:2], reduction=r), X, LABELS),
        (lambda x, y: F.multi_margin_loss(x[:1], y[1], reduction=r), X, LABELS),
    ]:  # fmt: skip
        assert is_a_loop(fn, *args)


def test_a_class_out_of_range():
    for wrong in (9, -1):
        check(lambda x, y: F.multi_margin_loss(x, y), X[:1], torch.tensor([wrong]))


def test_a_weight_larger_than_what_is_weighted():
    check(lambda x, t, w: torch.binary_cross_entropy_with_logits(x, t, w), X[0], T[0], W[None])


@pytest.mark.parametrize("order", [0, 1, 2, 3.0, float("inf")])
def test_distances_and_limited_norms(order):
    assert is_a_loop(lambda x, t: torch.dist(x, t[0], order), X, T)
    assert is_a_loop(lambda x, t: torch.dist(x, t, order), X.half(), T.half())
    if order:
        for dim in (0, -1):
            assert is_a_loop(lambda x: x.renorm(order, dim, 1.5), X)


def test_extremes_of_nothing_are_refused():
    check(lambda x: x.min(), torch.ones(0, 3, dtype=torch.bool))
    check(lambda x, y: torch.dist(x, y, -1.0), X[:0], T[:0])


def test_traces():
    for x in (X, X.t(), X.long(), X[:, :0]):
        assert is_a_loop(lambda x: x.trace() + 1, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_rounding_of_16_bits(loss, dtype):
    """Bit for bit: some of eager's kernels round at every step."""
    x, t = X.to(dtype) * 3, T.to(dtype)
    check(lambda x, t: loss(x, t, reduction="none"), x, t, rtol=0, atol=0)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_two_dtypes(loss, reduction):
    x, t = X.as_strided((3, 2, 1), (2, 1, 9)), T.as_strided((3, 2, 1), (1, 3, 9)).double()
    check(lambda x, t: loss(x, t, reduction=reduction), x, t)
    check(lambda x, t: loss(t, x, reduction=reduction), x, t)
