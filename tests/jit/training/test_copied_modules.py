"""Gradients of copies: a copied module has parameters of its own, and a copied tensor keeps what autograd asks."""

import copy

import pytest
import torch

from frameloom import jit

X = torch.arange(12.0).reshape(3, 4) / 7


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))


def test_a_copied_module_is_trained():
    net = network()

    def fn(x):
        other = copy.deepcopy(net)
        loss = other(x).square().sum()
        loss.backward()
        return (
            loss.detach(),
            [p.grad for p in other.parameters()],
            [p.grad for p in net.parameters()],
        )

    compiled = jit(fn)
    for _ in range(2):
        (loss, grads, own), (want, wanted, _) = compiled(X), fn(X)
        torch.testing.assert_close(loss, want)
        torch.testing.assert_close(grads, wanted)
        assert own == [None] * 4


def test_the_copy_of_a_module_leaves_the_call():
    net = network()

    def fn(x):
        other = copy.deepcopy(net)
        return other, other(x).sum() + net(x).mean()

    for side in (fn, jit(fn)):
        net.zero_grad()
        other, loss = side(X)
        loss.backward()
        assert all(p.is_leaf and p.requires_grad for p in other.parameters())
        found = [p.grad for p in (*other.parameters(), *net.parameters())]
        assert all(g is not None for g in found)
        if side is fn:
            wanted = found
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_copied_leaf(has_gradient):
    def fn(x):
        y = copy.deepcopy(x)
        return y, (y * x).sum()

    results = []
    for side in (fn, jit(fn)):
        x = X.clone().requires_grad_()
        if has_gradient:
            x.grad = torch.ones_like(x)
        y, loss = side(x)
        loss.backward()
        results.append((y.is_leaf, y.requires_grad, y.grad, x.grad))
    torch.testing.assert_close(results[1], results[0])


def test_what_is_no_leaf_is_not_copied():
    def fn(x):
        return copy.deepcopy(x * 2)

    for side in (fn, jit(fn)):
        with pytest.raises(RuntimeError, match="deepcopy"):
            side(X.clone().requires_grad_())


def test_a_shallow_copy_of_a_leaf():
    def fn(x):
        y = copy.copy(x)
        return y, (y * 2).sum() + x.sum()

    results = []
    for side in (fn, jit(fn)):
        x = X.clone().requires_grad_()
        y, loss = side(x)
        loss.backward()
        results.append((y.is_leaf, y.requires_grad, y.data_ptr() == x.data_ptr(), y.grad, x.grad))
    torch.testing.assert_close(results[1], results[0])
