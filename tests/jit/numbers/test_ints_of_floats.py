"""`int(x.item())` of a float, as a number, as a size, and as the place of the only item of a sequence."""

import pytest
import torch

from frameloom import explain, jit
from tests.observe import assert_same_call, observe

INF = float("inf")
VALUES = (3.7, 3.2, 0.0, -0.5, -2.7, 2.0**40 + 0.5, 1e30, -1e30, INF, -INF, float("nan"), 5.9)


def agree(fn, calls, **options):
    jitted = jit(lambda *args: fn(*args), fullgraph=True, **options)
    for make in calls:
        sides = []
        for f in (fn, jitted):
            torch.manual_seed(0)
            sides.append(observe(f, make))
            sides[-1].drawn = torch.rand(2)
        assert_same_call(sides[1], sides[0], str(make()))
        assert torch.equal(sides[1].drawn, sides[0].drawn)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_number(dtype):
    agree(
        lambda x: (x * 2, int(x.sum().item())),
        [lambda v=v: (torch.tensor([v], dtype=dtype),) for v in VALUES],
    )


def test_size():
    agree(
        lambda x: torch.ones(int(x.sum().item())) * 2,
        [lambda v=v: (torch.tensor([v]),) for v in VALUES if not 100 < abs(v) < INF],
    )


def test_no_number_is_raised_before_effects():
    def fn(x, seen):
        x.add_(1)
        seen.append(1)
        return x * 2, int(x.sum().item())

    agree(fn, [lambda v=v: (torch.tensor([v]), []) for v in (1.5, INF, 2.5)])


ONE, TWO = (3.0,), (3.0, 4.0)


def chosen(of):
    return of[int(torch.empty(1).uniform_(0.0, float(len(of))).item())]


def test_only_item_is_chosen():
    agree(lambda x: x * chosen(ONE) + torch.rand(2), [lambda: (torch.ones(2),)] * 3)
    assert explain(lambda x: x * chosen(TWO))(torch.ones(2)).breaks


def test_place_of_the_only_item():
    agree(
        lambda x, at: (x * ONE[at.max().item()], [x][at.sum().item()] + 1),
        [lambda n=n: (torch.ones(2), torch.tensor([n, n])) for n in (0, 0, -1, 1, -2, 0)],
    )


def asserted(x):
    for k in range(2):
        bad = x[k:] < 0
        if bad.any():
            at = torch.where(bad)[0][0]
            worst = x[at].tolist()
            torch._assert(False, f"{worst} at {k}")
    return x + 1


def checked(x):
    if not (x >= 0).all():
        torch._check(False)
    return x + 1


@pytest.mark.parametrize("fn", [asserted, checked])
def test_checks_that_are_false(fn):
    values = [1.0, 2.0], [1.0, -1.0], [-3.0, 1.0], [0.0, 4.0]
    agree(fn, [lambda v=v: (torch.tensor(v),) for v in values])
