"""Masks of attention as the library's fast kernels take them."""

import pytest
import torch
import torch.nn.functional as F

from frameloom.ir.dtype import DType
from frameloom.ir.program import Extern, View
from tests.capture.cuda.test_cuda_graphs import _tensors_seem_to_be_on_a_gpu, lowered

__all__ = ["_tensors_seem_to_be_on_a_gpu"]  # a fixture
Q = torch.randn(2, 4, 48, 32)
NUMBERS = torch.arange(48)


@pytest.fixture(autouse=True)
def _no_driver_is_asked_for(monkeypatch):
    """When tensors are made on a GPU."""
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)


def attention(make, *args):
    """The mask and `is_causal` that the call is given, and what runs before."""
    program, steps = lowered(
        lambda q, *a: F.scaled_dot_product_attention(q, q, q, attn_mask=make(*a)), Q, *args
    )
    (call,) = [s for s in program.steps if isinstance(s, Extern)]
    return call.args[3], call.args[5], steps[:-1], program


def by_position(make):
    def made(x):
        numbers = torch.arange(48, device=x.device)
        return make(numbers.unsqueeze(1), numbers.unsqueeze(0))

    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda i, j: (i >= 0).expand(2, 1, 48, 48),
        lambda i, j: torch.ones_like(i, dtype=torch.bool),
        lambda i, j: torch.zeros_like(i, dtype=torch.float32).expand(48, 48),
    ],
    ids=["by position", "ones", "zeros to add"],
)
def test_masks_that_hide_nothing_are_dropped(make):
    mask, causal, before, _ = attention(by_position(make), NUMBERS)
    assert (mask, causal, before) == (None, False, [])


@pytest.mark.parametrize(
    "make",
    [
        lambda i, j: i >= j,
        lambda i, j: j <= i,
        lambda i, j: (j > i).logical_not(),
        lambda i, j: torch.ones(48, 48, dtype=torch.bool, device=i.device).tril(),
        lambda i, j: torch.ones(48, 48, dtype=torch.bool, device=i.device).triu(1).logical_not(),
        lambda i, j: torch.zeros(48, 48, device=i.device).masked_fill(j > i, float("-inf")),
        lambda i, j: torch.full((48, 48), float("-inf"), device=i.device).triu(1),
        lambda i, j: torch.full((48, 48), torch.finfo(torch.float32).min, device=i.device).triu(1),
        lambda i, j: (i >= j).expand(2, 1, 48, 48) & (j >= 0),
    ],
    ids=[
        "rows",
        "columns",
        "not",
        "tril",
        "triu",
        "masked_fill",
        "triu of -inf",
        "triu of the least",
        "two",
    ],
)
def test_the_triangular_mask_is_causal(make):
    mask, causal, before, _ = attention(by_position(make), NUMBERS)
    assert (mask, causal, before) == (None, True, [])


@pytest.mark.parametrize(
    "make",
    [
        lambda i, j: i > j,
        lambda i, j: i <= j,
        lambda i, j: i + 1 >= j,
        lambda i, j: (i >= j) & (i - j < 8),
        lambda i, j: torch.zeros(48, 48, device=i.device).masked_fill(j > i, -8.0),
    ],
    ids=["strict", "upper", "one more", "window", "finite"],
)
def test_other_masks_stay(make):
    mask, causal, before, _ = attention(by_position(make), NUMBERS)
    assert isinstance(mask, View) and not causal and before == ["cuda:0"]


@pytest.mark.parametrize(
    "mask",
    [
        torch.randn(48, 48, 4).permute(2, 0, 1),
        torch.randn(48, 53)[:, :48],
    ],
    ids=["strided", "rows not aligned"],
)
def test_masks_are_numbers_in_aligned_rows(mask):
    given, _, before, program = attention(lambda m: m, mask)
    assert before == ["cuda:0"]
    assert given.shape == (*mask.shape[:-1], 48)
    assert given.strides[-1] == 1 and all(s % 16 == 0 for s in given.strides[:-1])
    assert given.buffer.dtype is program.inputs[0].dtype


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(2, 1, 1, 48, dtype=torch.bool),
        torch.ones(2, 1, 1, 48, dtype=torch.bool).expand(2, 4, 48, 48),
        torch.ones(2, 4, 48, 1, dtype=torch.bool).expand(2, 4, 48, 48),
    ],
    ids=["bools", "expanded", "one key"],
)
def test_masks_of_bools_stay_bools(mask):
    # What a query gets that sees no key depends on the kernel, and the kernel on the mask's type.
    given, _, before, _ = attention(lambda m: m, mask)
    assert len(before) == (mask.stride(-1) != 1)
    assert given.strides[-1] == 1 and given.buffer.dtype is DType.BOOL


def test_a_mask_for_several_layers_is_written_once():
    def f(q, mask):
        for _ in range(3):
            q = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        return q

    _, steps = lowered(f, Q, torch.randn(48, 53)[:, :48])
    assert steps.count("cuda:0") == 1


def test_masks_that_fit_are_given_as_they_are():
    given, _, before, program = attention(lambda m: m, torch.randn(2, 1, 48, 48))
    assert before == [] and given.buffer == program.inputs[1]


def test_nothing_is_left_of_a_dropped_mask():
    _, _, _, program = attention(
        lambda x: torch.ones(48, 48, dtype=torch.bool, device=x.device), NUMBERS
    )
    assert len({b for s in program.steps for b in s.buffers}) == 2


def test_a_mask_of_sequences_packed_one_after_another_where_there_is_one():
    """Found as where the positions do not go on by one; here they always do."""

    def make(x):
        at = torch.arange(48, device=x.device).unsqueeze(0)
        before = torch.cat([at.narrow(1, 0, 1) - 1, at], -1).narrow(1, 0, 48)
        number = (at - before != 1).cumsum(-1)
        same = number.unsqueeze(1) == number.unsqueeze(2)
        return same & (at.unsqueeze(1) <= at.unsqueeze(2))

    mask, causal, before, _ = attention(make, NUMBERS)
    assert (mask, causal, before) == (None, True, [])
