"""What masks hold that follow from no input."""

import pytest
import torch

import frameloom
from frameloom.capture.recording.recorder import Recorder
from frameloom.capture.recording.special_ops import simplified_mask
from frameloom.capture.tensors.constant_folding import known_mask


def recorded(fn):
    recorder = Recorder()
    return known_mask(recorder.call(fn, (), {}, None), recorder)


def test_a_mask_made_of_sizes():
    def mask():
        rows, columns = torch.arange(6)[:, None], torch.arange(6)[None]
        return ((columns <= rows) & rows.new_ones((), dtype=torch.bool)).expand(2, 1, 6, 6)

    assert torch.equal(recorded(mask), torch.ones(2, 1, 6, 6, dtype=torch.bool).tril())


def test_a_mask_that_was_written_to():
    def mask():
        made = torch.ones(4, 4, dtype=torch.bool)
        made[1, 2] = False
        return made

    assert torch.equal(recorded(mask), mask_with_a_hole())


def mask_with_a_hole():
    made = torch.ones(4, 4, dtype=torch.bool)
    made[1, 2] = False
    return made


def test_what_floats_or_random_numbers_lead_to_is_not_known():
    assert recorded(lambda: torch.linspace(0, 1, 5) > 0.5) is None
    assert recorded(lambda: torch.randint(0, 2, (5,)) > 0) is None
    assert recorded(lambda: torch.empty(5, dtype=torch.int64) > 0) is None


def test_masks_of_attention_that_need_not_be_read():
    def simplified(make):
        recorder = Recorder()
        query = torch.empty(2, 3, 6, 8)
        return simplified_mask(recorder, query, query, recorder.call(make, (), {}, None))

    assert simplified(lambda: torch.ones(6, 6, dtype=torch.bool)) == (None, False)
    assert simplified(lambda: torch.ones(6, 6, dtype=torch.bool).tril()) == (None, True)
    mask, is_causal = simplified(lambda: torch.ones(6, 6, dtype=torch.bool).tril(1))
    assert mask is not None and not is_causal


FILLED = [
    torch.full_like,
    lambda x, n: x.new_full((2,), n),
    lambda x, n: torch.full((2,), n),
    lambda x, n: torch.full_like(x, int(torch.ones(3).sum()) + n),
]


@pytest.mark.parametrize("fill", FILLED)
def test_a_branch_on_what_is_filled_with_a_number_of_the_call(fill):
    def fn(x, n):
        return x * 2 if fill(x, n).sum() > 5 else x + 1

    x, jitted = torch.ones(2), frameloom.jit(fn)
    for n in (1, 2, 3, 4, 5, 6, 2.5, True):
        assert jitted(x, n).equal(fn(x, n))
