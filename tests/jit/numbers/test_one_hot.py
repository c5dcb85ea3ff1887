"""F.one_hot: laid out as eager's, and classes out of range raise."""

import pytest
import torch
import torch.nn.functional as F

import frameloom
from tests.helpers import check


@pytest.mark.parametrize(
    "index", [torch.tensor([1, 2, 0]), torch.tensor([[1, 2], [0, 1]]).T, torch.tensor(1)]
)
def test_layouts(index):
    check(lambda i: F.one_hot(i, 3), index, graphs=1, breaks=0)
    check(lambda i: F.one_hot(i, 3).float().mean(0), index, graphs=1, breaks=0)


@pytest.mark.parametrize("wrong", [3, -1])
def test_classes_out_of_range_raise(wrong):
    check(lambda i: F.one_hot(i, 3), torch.tensor([0, wrong]))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize(
    "then", [torch.Tensor.float, torch.Tensor.t, torch.Tensor.contiguous, lambda t: t.reshape(-1)]
)
def test_what_is_made_of_the_result(then, mode):  # fmt: skip
    def fn(labels):
        return then(F.one_hot(labels, 4))

    with mode():
        made = frameloom.jit(fn)(torch.tensor([1, 3, 0]))
        assert made.equal(fn(torch.tensor([1, 3, 0])))
        assert made.is_inference() is (mode is torch.inference_mode)
