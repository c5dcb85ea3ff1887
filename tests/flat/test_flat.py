"""A few of the programs, and that what grows is seen."""

import pytest
import torch

import tests.flat.objects
import tests.flat.programs
import tests.flat.training  # noqa: F401
from tests.flat.growth import growth
from tests.flat.making import PROGRAMS

CALLS = 2000
SOME = ("sizes_that_vary", "gradients", "a_break", "an_exception_behind_a_break", "objects", "guards_that_fail", "hooks_of_results", "autocast_around")  # fmt: skip


@pytest.mark.parametrize("name", SOME)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nothing_is_held_behind_calls(name):
    call = PROGRAMS[name][0]()
    growth(call, CALLS)
    found = growth(call, CALLS)
    assert found.blocks < 0.8 * CALLS and found.malloced < 16 * CALLS, found


def test_what_is_held_is_seen():
    kept = []
    found = growth(lambda k: kept.append(torch.ones(3)), CALLS)
    assert found.blocks > CALLS / 2 and found.malloced > 16 * CALLS
