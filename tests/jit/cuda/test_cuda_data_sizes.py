"""Sizes that the data decides, on a GPU: the tests of the CPU with their tensors there."""

import pytest
import torch

from frameloom import jit
from tests.jit.sizes.test_own_op_sizes import ones, test_one_graph_for_all_sizes  # noqa: F401
from tests.observe import assert_same_call, observe

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _tensors_on_the_gpu():
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("fn", [
    lambda x: torch.arange(ones(x).shape[0]).max(), lambda x: ones(x).max(), lambda x: x[x > 0].amax(),
    lambda x: x.nonzero().t() + 1, lambda x: ones(x) if ones(x).shape[0] else x,
])  # fmt: skip
def test_where_they_are_not_just_any_the_graph_breaks(fn):
    jitted = jit(fn)
    for x in ([1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 3.0]):
        sides = [observe(f, lambda x=x: (torch.tensor(x),)) for f in (fn, jitted)]
        assert_same_call(sides[1], sides[0], str(x))
