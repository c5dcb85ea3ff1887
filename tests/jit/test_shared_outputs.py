"""Results that share memory are views of one tensor, as eager's are: they share the count of writes, by which autograd notices changes."""

import pytest
import torch

import frameloom

PROGRAMS = [
    lambda x: (lambda t: (t, t[0]))(x + 1),
    lambda x: (lambda t: (t[0], t))(x + 1),
    lambda x: (lambda t: (t[0], t[1], t[0]))(x + 1),
    lambda x: (x * 2).chunk(2),
    lambda x: (lambda t: (t.t(), t.view(-1), x[0]))(x + 1),
    lambda x: (lambda t: (t, t.view_as(t)))(x + 1),
    lambda x: (lambda t: (t[1:].view(torch.int32), t))(x + 1),
    lambda x: (lambda t: (t.imag, t))(x + 1j),
    lambda x: (lambda t: (torch.view_as_complex(t), t))(x[:, :2] + 1),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_writes_to_one_result_are_counted_for_the_others(fn, dynamic):
    jitted = frameloom.jit(fn, dynamic=dynamic)
    for rows in (2, 4, 4):
        found = []
        for side in (fn, jitted):
            results = side(torch.ones(rows, 3))
            results[0].add_(1)
            found.append([(r._version, r.tolist(), r.stride()) for r in results])
        assert found[0] == found[1]


def test_a_change_of_what_is_saved_is_noticed():
    def make(x):
        t = x + 1
        return t, t[0]

    w = torch.ones(3, requires_grad=True)
    for side in (make, frameloom.jit(make)):
        t, row = side(torch.ones(2, 3))
        loss = (w * t).sum()
        row.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def base_of_a_view(x):
    t = x + 1
    a = t[0]
    if a._base is None or t._base is not None:
        return 1
    return (2, a._base is t, a), t


def base_behind_a_break(x):
    t = x + 1
    a = t[0]
    print("break")
    return a._is_view(), a._base is t, t._is_view()


@pytest.mark.parametrize("fn", [base_of_a_view, base_behind_a_break])
def test_a_view_tells_its_base(fn):
    from tests.helpers import check

    check(fn, torch.ones(3))
