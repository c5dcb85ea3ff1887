"""Numbers that are computed from sizes that data decides: the graph ends before what makes such a size."""

import pytest
import torch

import frameloom
from frameloom import jit
from tests.helpers import check
from tests.observe import assert_same_call, observe


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


@pytest.mark.parametrize("part", [
    lambda kept, n: kept[2:n].fill_(2), lambda kept, n: kept[n:].mul_(2), lambda kept, n: kept[n : 2 * n].add_(1),
    lambda kept, n: kept[: -n - 1].narrow(0, 1, n).neg_(), lambda kept, n: kept.unfold(0, n, 1), lambda kept, n: kept.split(n),
    lambda kept, n: kept[n], lambda kept, n: kept.new_zeros(kept.shape[0] - n),
])  # fmt: skip
@pytest.mark.parametrize(
    "follows", [lambda x, n: x * n, lambda x, n: x * 2, lambda x, n: x.mul_(3)]
)
@pytest.mark.parametrize("grad", [False, True])
def test_numbers_that_such_sizes_are_compared_with(part, follows, grad):
    """Nothing but that comparison is left of the part."""

    def fn(x, n):
        kept = torch.where(x > 0)[0]
        part(kept, n)
        return follows(x, n)

    jitted = frameloom.jit(fn)
    for n in (4, 3, 5, 2, 30, 1):

        def given(n=n):
            return torch.linspace(-1, 1, 41, requires_grad=grad) * 1, n

        got, want = (observe(f, given, grad=grad) for f in (jitted, fn))
        assert_same_call(got, want, str(n))
