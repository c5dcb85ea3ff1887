"""Numbers that are computed from sizes that data decides: the graph ends before what makes such a size."""

import pytest
import torch

from frameloom import jit
from tests.helpers import check


def shifted(x, f):
    return x + (f + x.nonzero().shape[0])


def written(x, f):
    x[1] = f + x.argwhere().shape[0]


def halved(x, f):
    x.add_(x.nonzero().shape[0] / 2)
    return torch.full((2,), x.nonzero().shape[0] / 4)


def whole(x, f):
    x[1] = x.nonzero().shape[0] * 2


@pytest.mark.parametrize("fn", [shifted, written, halved, whole])
def test_as_plain(fn):
    for x in (torch.tensor([1.0, 0.0, 3.0]), torch.zeros(3), torch.ones(3)):
        check(fn, x, 0.5)


@pytest.mark.parametrize("size", [-1, 0, 1, 2, 5])
@pytest.mark.parametrize("shape", [(3,), (0,)])
def test_pieces_of_any_size(size, shape):
    check(lambda x: (x + 1).split(size)[-1], torch.zeros(shape))


def test_a_number_that_python_has_to_know():
    """It stays what is computed of the size, behind the break."""

    def program(x):
        return x + len(range(0, max(3, x.nonzero().shape[0]), 2))

    jitted = jit(program)
    for n in (5, 4, 7):
        x = (torch.arange(9) < n).float()
        assert torch.equal(jitted(x), program(x))
