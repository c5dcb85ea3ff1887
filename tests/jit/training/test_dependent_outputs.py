"""Outputs of which other outputs of the same call are computed: what hooks and retain_grad() see of the gradient that flows inside."""

import itertools

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import frameloom
from frameloom import jit
from tests.jit.gradients.training import leaf, same_training


def program_of(look, loss_of=lambda loss, h, z: loss):
    """`look(h, z, seen)` is called between the passes."""

    def program(jit):
        layer = nn.Linear(4, 4)

        @jit
        def f(x, target):
            h = layer(x).tanh()
            z = F.dropout(h, 0.3) * 2
            return ((z - target) ** 2).mean(), h, z

        seen = []
        for _ in range(2):
            x = torch.randn(3, 4).requires_grad_()
            loss, h, z = f(x, torch.randn(3, 4))
            look(h, z, seen)
            loss_of(loss, h, z).backward()
            seen += [x.grad, h.grad if h.retains_grad else None, layer.weight.grad.clone()]
        return seen

    return program


def retain(h, z, seen):
    h.retain_grad()
    z.retain_grad()


def several(h, z, seen):
    h.register_hook(lambda g: seen.append(g.clone()))
    z.register_hook(lambda g: seen.append(g.clone()))
    h.register_hook(lambda g: g * 3)
    h.retain_grad()


def removed(h, z, seen):
    h.register_hook(lambda g: g * 3).remove()


def on_one(h, z, seen):
    z.register_hook(lambda g: g * 3)


LOOKS = {"retained": retain, "several": several, "removed": removed, "one": on_one}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize(
    "loss_of",
    [
        lambda loss, h, z: loss,
        lambda loss, h, z: loss + h.sum() + z.square().sum(),
        lambda loss, h, z: h.sum(),
    ],
    ids=["inside", "both", "outside"],
)
def test_what_is_seen_of_a_gradient(look, loss_of):
    same_training(program_of(look, loss_of), graphs=1)


def test_a_hook_on_what_the_program_has_let_go_of():
    def program(jit):
        @jit
        def f(x):
            h = x * 3
            return (h * h).sum(), h

        x, seen = torch.randn(4).requires_grad_(), []
        loss, h = f(x)
        h.register_hook(lambda g: seen.append(g.clone()))
        del h
        loss.backward()
        return [x.grad, *seen]

    same_training(program)


def test_hooks_around_a_write():
    def program(jit):
        f = jit(lambda x: ((h := x * 3).sum() * 2, h))
        x, seen = torch.randn(4).requires_grad_(), []
        loss, h = f(x)
        h.register_hook(lambda g: seen.append(g.clone()))
        h.mul_(5)
        h.register_hook(lambda g: seen.append(g.clone()))
        (loss + h.sum()).backward()
        return [x.grad, *seen]

    same_training(program)


def test_a_second_derivative():
    def program(jit):
        f = jit(lambda x: ((h := x * x).square().sum(), h))
        x, seen = torch.randn(4).requires_grad_(), []
        loss, h = f(x)
        h.register_hook(lambda g: seen.append(g.detach().clone()))
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        g.square().sum().backward()
        return [x.grad, g.detach(), *seen]

    same_training(program)


def test_such_an_output_is_given_to_the_next_call():
    frameloom.reset()
    f, g = jit(lambda x: ((h := x * 3).sum(), h)), jit(lambda h: h.square().sum())
    for _ in range(3):
        x = torch.ones(4, requires_grad=True)
        loss, h = f(x)
        (loss + g(h)).backward()
        assert torch.equal(x.grad, torch.full((4,), 21.0))
    assert frameloom.stats()["graphs"] == 2


VIEWS = {
    "of a result": lambda x: ((z := x * 2), (a := z[0]), a * 3),
    "of what nobody sees": lambda x: ((a := (z := x * 2)[0]), z[1], a * 3),
    "of an input": lambda x: ((a := x.view(-1)), a * 3),
    "pieces": lambda x: ((p := (x * 2).chunk(2))[0], p[1], (p[0] * p[1]).sum()),
    "views of views": lambda x: ((a := (x * 2).t()), (b := a[:1]), (c := b.view(-1)), c + a.sum()),
    "views of views alone": lambda x: ((a := x[:]), (b := a[:]), b[:], x * 3),
    "of what was written": lambda x: ((y := (x * 2).mul_(3)), (v := y[0]), v * 3),
    "written themselves": lambda x: ((y := x * 2), (v := y[0].mul_(3)), v * 3),
    "lazily conjugated": lambda x: ((z := torch.complex(x, x).conj()), (z * 2).abs()),
}


@pytest.mark.parametrize("rows", [(2,), (2, 4, 6)])
@pytest.mark.parametrize("name", VIEWS)
def test_gradients_of_views_that_lead_to_others(name, rows):
    """By name, with hooks, retained, and where the first of them is changed."""

    def program(jit):
        f = jit(VIEWS[name])
        seen = []
        for n, how in itertools.product(rows, ("named", "hooks", "retained", "changed", "dropped")):
            x = leaf(n, 3)
            *views, last = f(x)
            loss = (last * last).sum()
            if how == "named":
                seen += torch.autograd.grad(loss, views, allow_unused=True)
                continue
            for k, t in enumerate(views):
                if how == "hooks":
                    t.register_hook(lambda given, k=k: seen.append((k, given)))
                elif how == "retained":
                    t.retain_grad()
            if how == "changed" and name != "pieces":
                views[0].mul_(2)
                loss = loss + views[0].abs().sum()
            if how == "dropped":
                views[-1].register_hook(lambda given: given * 2)
            del t
            kept = views if how == "retained" else []
            del views
            loss.backward()
            seen += [x.grad, [v.grad for v in kept]]
        return seen

    same_training(program)


def test_views_of_views_whose_base_is_written_then():
    """Their histories begin at the base, not at each other."""

    def fn(x):
        y = x * 2
        v = y[:]
        w = v.view(-1)
        y.mul_(3)
        return y, v, w, w * 2

    def program(jit):
        x = leaf(2, 3)
        y, v, w, last = jit(fn)(x)
        for t in (y, v, w):
            t.retain_grad()
        (last.sum() + w.sum()).backward()
        return x.grad, y.grad, v.grad, w.grad

    same_training(program)
