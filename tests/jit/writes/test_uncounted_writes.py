"""Writes through `.data`, which autograd does not count: a backward pass behind them takes what is there."""

import pytest
import torch

import frameloom
from frameloom import jit
from tests.jit.gradients.training import leaf, same_training


def whole(w):
    w.data.mul_(0.5)


def part(w):
    w.data[1:].mul_(0.5)


def both(w):
    w.detach().mul_(0.5)
    w.data.add_(1)


def drawn(w):
    w.data.t().bernoulli_()


@pytest.mark.parametrize("backend", [None, "eager"])
@pytest.mark.parametrize("write", [whole, part, both, drawn])
def test_versions(write, backend):
    versions = []
    for fn in (write, jit(write, backend=backend)):
        w = torch.ones(3, 3, requires_grad=True)
        fn(w)
        versions.append(w._version)
    assert versions[0] == versions[1]


def test_backward_behind_a_write_to_what_was_saved():
    gradients = []
    for fn in (whole, jit(whole)):
        w = torch.arange(3.0).requires_grad_()
        loss = (w * w).sum()
        fn(w)
        loss.backward()
        gradients.append(w.grad)
    assert torch.equal(*gradients)


def test_a_write_that_was_taken_back_is_not_counted():
    def fn(w, flag):
        w.data.mul_(2)
        if flag.sum() > 0:
            print(end="")
        w.data.add_(1)

    for call in (fn, jit(fn)):
        w = torch.ones(3, requires_grad=True)
        call(w, torch.ones(2))
        assert w._version == 0
        assert w.tolist() == [3, 3, 3]


@pytest.mark.parametrize("requires_grad", [True, False])
def test_writes_to_data_that_was_returned(requires_grad):
    versions = []
    for fn in (lambda w: w.data, lambda w: w.data[1:], lambda w: w.detach()):
        for side in (fn, jit(fn), jit(lambda w: (fn(w), w + 1)[0])):
            w = torch.ones(3, 3, requires_grad=requires_grad)
            side(w).mul_(2)
            versions.append(w._version)
    assert versions == [0, 0, 0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("fn", [lambda x: (x, (x * x).sin() * x), lambda x: (y := x * 1, y.sin())])
def test_other_data_for_what_is_saved(fn):
    """Autograd computes the gradient with what is there when it comes to it."""

    def f(x):
        tensor, result = fn(x)
        tensor.data = torch.full((2,), 3.0)
        return result

    def program(jit):
        x = leaf(2)
        jit(f)(x).sum().backward()
        return x.grad

    same_training(program, plain=None)


def behind_a_break(x, y):
    loss = y.abs().log1p()
    frameloom.graph_break()
    y.data.mul_(-2)
    return loss


def through_one_that_shares_its_memory(x, y):
    loss = y.abs().log1p()
    x.set_(y)
    x.mul_(-2)
    return loss


def through_one_whose_data_it_is(x, y):
    loss = y.abs().log1p()
    x.data = y
    x.mul_(-2)
    return loss


def by_numpy(x, y):
    loss = y.abs().log1p()
    y.detach().numpy()[:] = -3
    return loss


def in_a_function_that_is_called(x, y):
    def write(t):
        frameloom.graph_break()
        t.data.mul_(-2)

    loss = y.abs().log1p()
    write(y)
    return loss


@pytest.mark.parametrize("backend", ["frameloom", "eager"])
@pytest.mark.parametrize(
    "fn",
    [
        behind_a_break,
        by_numpy,
        in_a_function_that_is_called,
        through_one_that_shares_its_memory,
        through_one_whose_data_it_is,
    ],
)
def test_what_eager_has_computed_before_is_not_computed_again(fn, backend):
    """What eager saves itself is as it is then; what it has computed from that is as it was."""
    found = []
    for side in (fn, jit(fn, backend=backend)):
        leaf = torch.tensor([-2.0, 0.5, 3.0], requires_grad=True)
        y = leaf * 1
        side(torch.zeros(3), y).sum().backward()
        found.append((leaf.grad.tolist(), y.tolist()))
    assert found[0] == found[1]
