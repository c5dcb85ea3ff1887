"""Binary search, and elements counted through a whole tensor."""

import pytest
import torch

from tests.helpers import check, jit_for_test

X = torch.tensor([[-1.0, 0.0, 0.5], [2.0, torch.nan, torch.inf]])
VALUES = torch.tensor([-1.0, 0.0, 0.0, 0.5, 1.5, 2.0, 2.0])


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_places_in_sorted_values(right, count):
    f = lambda x, v: (torch.bucketize(x, v, right=right), torch.searchsorted(v, x, right=right))
    check(f, X, VALUES[:count])
    check(lambda x, v: torch.bucketize(x, v, out_int32=True, right=right) + 1, X, VALUES[:count])


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int64, torch.uint8], ids=str
)
def test_values_of_other_types(dtype):
    x, v = torch.randint(0, 50, (300,)).to(dtype), torch.arange(0, 40, 2).to(dtype)
    check(lambda x, v: torch.bucketize(x * 2, v), x, v)


def test_a_row_of_values_for_each_row():
    v, x = torch.randn(2, 3, 20).sort().values, torch.randn(2, 3, 5)
    check(lambda v, x: torch.searchsorted(v, x, side="right"), v, x)


def test_values_that_are_not_sorted():
    check(lambda v, x: torch.searchsorted(v, x), torch.randn(33), torch.randn(100))


def test_a_sorter_and_nothing_to_search():
    v = torch.randn(9)
    check(lambda v, x: torch.searchsorted(v, x, sorter=v.argsort()), v, X)
    check(lambda v, x: torch.searchsorted(v, x), torch.empty(0), X)
    check(lambda v, x: torch.bucketize(x, v), VALUES, torch.empty(0))


def test_elements_counted_through_the_tensor():
    i = torch.tensor([[0, -1], [3, 3]])
    check(lambda x: torch.take(x * 2, i), X)
    check(lambda x: torch.take(x.t(), i), X)
    check(lambda x: torch.take(x[1], i % 3), X)
    with pytest.raises(IndexError):
        jit_for_test(lambda x: torch.take(x, i + 3))(X)
