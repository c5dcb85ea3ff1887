"""Programs that differentiate a gradient, as a jitted module in a plain step and as one jitted step: both equal eager."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from tests.jit.gradients.training import facts, leaf, same_training
from tests.observe import same


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 1))


class Forces(nn.Module):
    """The energy of some particles, and what it pushes them with."""

    def __init__(self):
        super().__init__()
        self.pair = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))  # fmt: skip

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = self.pair((x[:, None] - x[None]).square().sum(-1, keepdim=True)).sum()
            (g,) = torch.autograd.grad(energy, x, create_graph=True)
        return energy, -g


def gradient_penalty(model, optimizer):
    real, made = torch.randn(5, 4), torch.randn(5, 4)
    mix = torch.rand(5, 1)
    x = (mix * real + (1 - mix) * made).requires_grad_()
    (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    loss = model(made).mean() - model(real).mean() + ((g.norm(dim=1) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def hessian_vector_product(model, optimizer):
    parameters = list(model.parameters())
    loss = model(torch.randn(5, 4)).square().mean()
    gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    along = sum((g * torch.randn_like(g)).sum() for g in gradients)
    products = torch.autograd.grad(along, parameters, materialize_grads=True)
    with torch.no_grad():
        for p, h in zip(parameters, products, strict=True):
            p.sub_(h, alpha=0.1)
    return loss.detach()


def learning_to_learn(model, optimizer):
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    fast = dict(model.named_parameters())
    for _ in range(2):
        inner = F.mse_loss(torch.func.functional_call(model, fast, (x,)), y)
        gradients = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
        fast = {k: p - 0.1 * g for (k, p), g in zip(fast.items(), gradients, strict=True)}
    loss = F.mse_loss(torch.func.functional_call(model, fast, (x,)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def trained_on_forces(model, optimizer):
    x = torch.randn(4, 3)
    energy, force = model(x)
    loss = energy.square() + (force - x).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


PROGRAMS = {
    "gradient penalty": (network, gradient_penalty),
    "hessian vector product": (network, hessian_vector_product),
    "learning to learn": (network, learning_to_learn),
    "forces": (Forces, trained_on_forces),
}


def trained(name, how):
    make, step = PROGRAMS[name]
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    if how == "module":
        frameloom.jit(model)
    elif how == "step":
        step = frameloom.jit(step)
    with torch.enable_grad():
        losses = [step(model, optimizer) for _ in range(4)]
    return losses, list(model.parameters()), torch.get_rng_state()


@pytest.mark.parametrize("how", ["module", "step"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name, how):
    want = trained(name, "plain")
    frameloom.reset()
    same(trained(name, how), want, 1e-4, 1e-5, "[losses, parameters, random state]")
    stats = frameloom.stats()
    # The optimizer's first step makes its state.
    assert stats["plain"] + stats["breaks"] == 0, stats
    assert stats["graphs"] <= 2, stats


def test_what_runs_op_by_op_is_not_captured_again():
    inner = frameloom.jit(lambda x, w: (x @ w).tanh().sum())

    def fn(x, w):
        y = inner(x, w)
        print(end="")
        (g,) = torch.autograd.grad(y * 2, w, create_graph=True)
        return g.square().sum()

    frameloom.reset()
    jitted = frameloom.jit(fn)
    x = torch.randn(3, 4)
    with torch.enable_grad():
        for _ in range(4):
            w = torch.randn(4, 4, requires_grad=True)
            torch.testing.assert_close(jitted(x, w), fn(x, w))
    assert frameloom.stats()["graphs"] <= 5


def test_a_loss_that_is_spent_before_a_break_in_inference_mode():
    def fn(x, w):
        loss = (x * w).sum()
        loss.backward()
        with torch.inference_mode():
            frameloom.graph_break()
            after = x * 2
        return loss, after

    def program(jit):
        w = leaf(3)
        loss, after = jit(fn)(torch.ones(3), w)
        return loss, after.is_inference(), *facts(w)

    same_training(program)


def a_view_of_what_is_written(x, w, kept):
    changed = w.clone()
    changed.view(-1)[0].mul_(3)
    kept.append(F.gelu(w))
    kept[0].sum().backward()


def a_history_that_is_lost(x, w, kept):
    (w * 2).sum().backward()
    x = x * 1
    with torch.no_grad():
        kept.append(x[0])
    x[:1].mul_(w.sum())


@pytest.mark.parametrize("fn", [a_view_of_what_is_written, a_history_that_is_lost])
def test_histories_that_autograd_makes_anew_behind_a_pass(fn):
    """Which histories are spent is asked of tensors whose own autograd has put off, or has lost."""

    def program(jit):
        w, kept = leaf(3), []
        jit(fn)(torch.ones(2, 3), w, kept)
        return kept[0].detach(), kept[0].requires_grad, *facts(w)

    same_training(program, plain=None)


def gradient_of_a_copy(x):
    y = x.clone().requires_grad_()
    z = (y * y).sum()
    z.backward()
    return z.detach(), y.grad


def test_the_gradient_of_what_is_no_leaf_warns_once_a_call():
    """Guards do not look at it: each look would warn."""
    f = frameloom.jit(gradient_of_a_copy)
    for size, requires_grad in ((2, False), (3, True), (4, False), (2, True), (2, False)):
        seen = []
        for g in (gradient_of_a_copy, f):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                g(torch.ones(size, requires_grad=requires_grad))
            seen.append([w for w in found if "not a leaf" in str(w.message)])
        assert len(seen[1]) == len(seen[0]) == int(requires_grad)
