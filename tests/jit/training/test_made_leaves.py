"""Captured code that makes tensors require gradients: histories begin there, and what the program sees of it is what it sees in eager."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from tests.jit.gradients.training import caught, facts, leaf, same_training

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor", "ignore:frameloom"
)


def compare(fn, *makes, graphs=None):
    def program(jit):
        jitted = jit(fn)
        seen = []
        for _ in range(2):
            args = [make() for make in makes]
            result = caught(jitted, *args)
            for t in result if isinstance(result, tuple) else (result,):
                if isinstance(t, torch.Tensor) and t.requires_grad and t.numel() == 1:
                    t.backward()
            seen.append((result, facts(*args)))
        return seen

    same_training(program, graphs)


def weights():
    return leaf(3)


def plain():
    return torch.arange(3.0)


def test_a_leaf_that_stays_inside():
    def fn(w):
        x = w.detach().clone().requires_grad_()
        (g,) = torch.autograd.grad((x * x * w).sum(), x, create_graph=True)
        return g.square().sum()

    compare(fn, weights, graphs=1)


def test_the_setter():
    def fn(w):
        x = torch.ones(3)
        x.requires_grad = True
        (g,) = torch.autograd.grad((x * x * w).sum(), x, create_graph=True)
        return (g.square() * w).sum()

    compare(fn, weights, graphs=1)


def test_made_so_at_once():
    def fn(w):
        x = torch.full((3,), 2.0, requires_grad=True)
        (x.exp() * w).sum().backward()
        (x * w).sum().backward()
        return x.grad

    compare(fn, plain, graphs=1)


def test_before_there_is_a_gradient():
    def fn(w):
        x = torch.ones(3, requires_grad=True)
        before = x.grad
        (x * w).sum().backward()
        return before is None, x.is_leaf, x.requires_grad, x.grad is None, w * 2

    compare(fn, weights, graphs=1)


def test_beside_an_input_that_gets_a_gradient():
    def fn(w):
        x = torch.ones(3, requires_grad=True)
        (x * w).sin().sum().backward()

    compare(fn, weights, graphs=1)


def test_a_leaf_that_is_returned():
    def fn(w):
        x = (w.detach() * 2).requires_grad_()
        return x, (x * w).sum()

    compare(fn, weights)


def test_a_view_of_a_leaf_that_is_returned():
    def fn(w):
        x = (w.detach() * 2).requires_grad_()
        return x.view(3, 1), (x * w).sum()

    compare(fn, weights)


def test_a_leaf_that_is_kept():
    kept = []

    def fn(w):
        x = w.detach().requires_grad_()
        kept.append(x)
        return (x * w).sum()

    compare(fn, weights)


def test_a_leaf_across_a_break():
    def fn(w):
        x = w.detach().clone().requires_grad_()
        y = (x * w).exp()
        print(end="")
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return (g * w).sum()

    compare(fn, weights)


def test_a_history_that_leads_only_there():
    def fn(a):
        x = a.clone().requires_grad_()
        return (x * 2).sum()

    compare(fn, plain)


def test_a_history_that_leads_only_there_beside_another():
    """What autograd saves along it is looked at, too: eager refuses the pass, as `relu` saves what is changed."""

    def fn(w):
        x = w.detach().requires_grad_()
        y = x.relu()
        z = w.trunc()
        y.sigmoid_()
        return (y * 2).sum(), z.sum()

    def program(jit):
        y, z = jit(fn)(weights())
        return str(caught((y + z).backward))

    same_training(program)


def test_a_leaf_that_is_changed():
    def fn(w):
        x = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            x.mul_(2)
        return (x * x * w).sum()

    compare(fn, weights)


def test_a_leaf_that_must_not_be_changed():
    def fn(w):
        x = torch.ones(3, requires_grad=True)
        x.mul_(2)
        return (x * w).sum()

    compare(fn, weights)


def test_integers_have_no_gradient():
    compare(lambda w: w.long().requires_grad_(), plain)


def test_inputs_are_left_to_python():
    def fn(a):
        a.requires_grad_()
        return (a * a).sum()

    compare(fn, plain)


def test_taken_back_with_the_call_that_made_it():
    class Scale(nn.Module):
        def forward(self, x):
            y = x.detach().requires_grad_()
            print(end="")
            return y * x

    model = Scale()
    compare(lambda w: model(w * 2).sum(), weights)


# --- gradients that are kept as the backward pass made them


def test_a_gradient_that_is_a_view():
    def program(jit):
        @jit
        def fn(x, w):
            F.linear(x, w).square().sum().backward()

        x, w = torch.randn(5, 1), leaf(7, 1)
        fn(x, w)
        return facts(w)

    same_training(program, graphs=1)


@pytest.mark.parametrize("shape", [(2, 3), (6,)])
def test_a_gradient_that_the_program_has(shape):
    """Autograd copies the tensor itself, and keeps a view that it made of it."""

    def program(jit):
        @jit
        def fn(x):
            g = torch.full(shape, 2.0)
            (x.view(shape) if x.dim() != len(shape) else x + 1).backward(g)
            g.mul_(3)
            return g

        x = leaf(2, 3)
        g = fn(x)
        return g, facts(x), g.data_ptr() == x.grad.data_ptr()

    same_training(program, graphs=1)


def test_gradients_of_one_memory():
    def program(jit):
        @jit
        def fn(x, w):
            (x.view(-1) + w.view(-1)).square().sum().backward()

        seen = []
        for _ in range(2):
            x, w = leaf(2, 3), leaf(3, 2)
            for _ in range(2):
                fn(x, w)
            seen.append((facts(x, w), x.grad.data_ptr() == w.grad.data_ptr()))
        return seen

    same_training(program, plain=None)


# --- modules called with other parameters


def test_called_with_other_parameters():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def program(jit):
        torch.manual_seed(1)

        @jit
        def fn(values, x):
            return torch.func.functional_call(net, values, (x,)).sum()

        seen = []
        for _ in range(2):
            values = {k: torch.randn_like(p).requires_grad_() for k, p in net.named_parameters()}
            values |= {k: b.clone() for k, b in net.named_buffers()}
            fn(values, torch.randn(5, 3)).backward()
            seen.append((values, [p.grad for p in net.parameters()], list(net.buffers())))
        return seen

    same_training(program)


def test_called_with_other_parameters_and_a_break():
    class Loud(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x):
            y = x * self.w
            print(end="")
            return y + self.w

    model = Loud()

    def program(jit):
        fn = jit(lambda w, x: torch.func.functional_call(model, {"w": w}, (x,)).sum())
        w = leaf(3)
        fn(w, torch.randn(3)).backward()
        return facts(w, model.w), type(model.w) is nn.Parameter

    same_training(program)


def test_unknown_names():
    model = nn.Linear(2, 2)

    def program(jit):
        fn = jit(lambda w, x: torch.func.functional_call(model, {"other": w}, (x,), strict=True))
        return caught(fn, torch.randn(2, 2), torch.randn(2))

    same_training(program, plain=None)
    assert frameloom.stats()["graphs"] <= 1
