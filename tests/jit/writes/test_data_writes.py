"""Sizes that the data decides, beside writes to inputs: nothing is written before the call has looked at them."""

import pytest
import torch
import torch.nn as nn

import frameloom
from tests.helpers import jit_for_test
from tests.jit.gradients.training import same_training
from tests.jit.sizes.test_data_sizes import masks
from tests.observe import assert_same_call, observe


def written_before(x, m):
    x.add_(1)
    return x[m].max()


def written_behind(x, m):
    y = x[m].max()
    x.mul_(2)
    return y


def mask_of_what_is_written(x, m):
    x.mul_(2)
    y = x[x > 1].amax(0)
    x.add_(1)
    return y


def some_assigned(x, m):
    x[m] = 0.5
    return x[~m].max() + 1


def chosen_assigned(x, m):
    x[m] = x[m].sort().values * 2
    return x.sum()


def assigned_where_it_is_itself(x, m):
    x[x > 0] = x[x > 0] - x[x > 0].max()
    return x[m].sum()


def positions_added(x, m):
    at = m.nonzero()[:, 0]
    x[at] += 1
    return x[at].sum(0) * x[m].max()


def added_at_positions(x, m):
    at = m.reshape(-1).nonzero()[:, 0]
    x.view(-1).index_add_(0, at, torch.ones(at.shape[0]))
    return x[m].min()


def mask_written(x, m):
    m.logical_not_()
    y = x[m].max()
    m.fill_(True)
    return y


def sliced_writes(x, m):
    n = m.sum().item()
    x.view(-1)[:n] = 3.0
    return x[:, : max(n // 6, 1)] + 1, x[m].max()


def nothing_assumed(x, m):
    x.add_(1)
    y = x[m] * 2
    x.add_(y.shape[0])
    return y


def written_without_elements(x, m):
    y = x.long()
    y[m[:, 0], 9:1] += y[m[:, 0], 9:1].sum()
    return y


def drawn(x, m):
    x.add_(torch.rand(5, 6))
    return x[m].max() + torch.rand(())


FUNCTIONS = (
    written_before, written_behind, mask_of_what_is_written, some_assigned, chosen_assigned, assigned_where_it_is_itself,
    positions_added, added_at_positions, mask_written, sliced_writes, nothing_assumed,
    written_without_elements, drawn,
)  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_one_graph(fn):
    jitted = jit_for_test(fn)
    for mask in masks(5, 6):
        given = torch.randn(5, 6), mask
        want, got = observe(fn, given, {}), observe(jitted, given, {})
        assert_same_call(got, want, f"{int(mask.sum())}: ", 1e-5, 1e-5)
    found = jitted.explanation
    assert (len(found.graphs), len(found.breaks)) == (1, 0), str(found)


def test_buffers():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(6))
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))
            self.norm = nn.BatchNorm1d(6)
            self.linear = nn.Linear(6, 3)

        def forward(self, x, m):
            self.calls += 1
            rows = m[:, 0]
            self.seen[m[0]] += 1
            y = self.linear(self.norm(x))[rows]
            return y.amax(0).cos() * self.seen.sum()

    def program(jit):
        torch.manual_seed(0)
        module = Counted()
        f, seen = jit(lambda x, m: module(x, m)), []
        for mask in masks(5, 6):
            x = torch.randn(5, 6, requires_grad=True)
            try:
                f(x, mask).sum().backward()
            except IndexError as error:
                seen.append(str(error))
            seen += [x.grad, module.seen.clone(), module.calls.clone(), module.norm.running_mean.clone()]  # fmt: skip
        return seen

    same_training(program, graphs=1)
    assert not frameloom.stats()["breaks"]


def test_a_step_that_starts_anew_has_not_trained_yet():
    """Without a row that is chosen, a maximum raises, and the parameters stay."""

    def program(jit):
        torch.manual_seed(0)
        model = nn.Linear(6, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @jit
        def step(x, m):
            optimizer.zero_grad()
            y = model(x)[m[:, 0]].amax(0).sum()
            y.backward()
            optimizer.step()
            return y.detach()

        seen = []
        for mask in masks(5, 6):
            try:
                seen.append(step(torch.randn(5, 6), mask))
            except IndexError as error:
                seen.append(str(error))
            seen += [p.detach().clone() for p in model.parameters()]
        return seen

    same_training(program, graphs=2)
    assert not frameloom.stats()["breaks"]


@pytest.mark.parametrize("before", [False, True])
def test_a_question_about_what_is_written(before):
    """It is no check of the indices, though it goes over as many elements."""

    def fn(x, i):
        asked = x.any() if before else None
        x.index_fill_(0, i, 0)
        return asked if before else x.any()

    i = torch.tensor([1, 0])
    assert bool(frameloom.jit(fn)(torch.ones(2, 4), i)) is before


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    "others", [torch.tensor([True, False, True, True, False]), torch.arange(3)]
)
def test_masks_beside_each_other_and_beside_positions(others, accumulate):
    """They stand for as many positions as they have true elements, not for their shapes."""

    def fn(x, m, n):
        y = x * 2
        y.index_put_((m, n), y.sum(), accumulate)
        return y

    jitted = jit_for_test(fn)
    for grad in (False, True):
        given = torch.randn(3, 5, requires_grad=grad), torch.ones(3, dtype=torch.bool), others
        want, got = (observe(f, given, {}, grad=grad) for f in (fn, jitted))
        assert_same_call(got, want, f"{grad}: ", 1e-5, 1e-5)
        assert not jitted.explanation.plain
