"""Whatever raises: PyTorch's settings are behind it as the plain program leaves them, and the program's own handlers have it."""

import pytest
import torch

import frameloom
from tests.sweeps.exceptions import differences

BLOCKS = ("no_grad", "inference", "autocast", "device")


@pytest.mark.parametrize("options", [{}, {"backend": "eager"}], ids=str)
@pytest.mark.parametrize("raises", ["check", "dtype, used"])
@pytest.mark.parametrize("setting", BLOCKS)
def test_a_block_that_was_entered_before_a_break(setting, raises, options):
    for place in ("behind, broken inside", "inside, broken inside"):
        assert not [*differences(setting, raises, place, **options)]


@pytest.mark.compiled
@pytest.mark.parametrize("options", [{}, {"backend": "eager"}], ids=str)
@pytest.mark.parametrize("setting", ["set", "dtype"])
@pytest.mark.parametrize("raises", ["check of an input", "index, used", "dtype, used"])
def test_what_is_set_without_a_block(setting, raises, options):
    for place in ("inside", "behind", "in a frame", "in a frame, inside"):
        assert not [*differences(setting, raises, place, **options)]


@pytest.mark.parametrize("place", ["caught", "in a frame, caught"])
@pytest.mark.parametrize("raises", ["check", "index", "dtype, used"])
def test_a_handler_of_what_another_backend_raises(raises, place):
    assert not [*differences("no_grad", raises, place, backend="eager")]


def test_blocks_that_are_left_by_the_exception_take_no_break():
    explanation = frameloom.explain(indexed)(torch.ones(3), torch.tensor([1]))
    assert not explanation.breaks


def indexed(x, i):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        y = torch.rand(3) + x
        return y[i]


@pytest.mark.parametrize("setting", ["deterministic", "function mode"])
def test_a_position_that_is_all_there_is_to_check_before_a_break(setting):
    assert not [*differences(setting, "item", "before")]
