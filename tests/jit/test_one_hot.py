"""F.one_hot: laid out as eager's, and classes out of range raise."""

import pytest
import torch
import torch.nn.functional as F

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
