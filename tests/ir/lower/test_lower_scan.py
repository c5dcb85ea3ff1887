"""Cumulative sums on a GPU: which are loops."""

import pytest
import torch

from tests.capture.cuda.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu, lowered

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture


@pytest.mark.parametrize(
    "x", [torch.ones(3, 40, dtype=torch.bool), torch.ones(3, 40).long(), torch.ones(3, 40)]
)
@pytest.mark.parametrize("dim", [0, -1])
def test_short_rows_are_sums(x, dim):
    assert lowered(lambda x: x.cumsum(dim) + 1, x)[1] == ["cuda:0"]


@pytest.mark.parametrize("x", [torch.ones(3, 9000), torch.ones(1, 9000, dtype=torch.int64)])
def test_others_are_the_librarys(x):
    assert "aten.cumsum.default" in lowered(lambda x: x.cumsum(-1) + 1, x)[1]
