"""Gradients through function transforms: what comes back to inputs and parameters is as in eager."""

import pytest
import torch
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from tests.helpers import jit_for_test
from tests.programs.transforms.test_110_transforms import EMPTY, NET, SCALAR, STACKED, Y, V

X = torch.linspace(-2, 2, 12).reshape(3, 4)
SQUARE = torch.linspace(-1, 1, 25).reshape(1, 1, 5, 5).sin()


def rows(function):
    return lambda x: vmap(grad(function))(x)


def residual(t):
    def u(t):
        return SCALAR(t).squeeze()

    first = vmap(grad(u))(t)
    second = vmap(grad(lambda t: grad(u)(t)[0]))(t)
    return ((second[:, 0] + first[:, 1]) ** 2).mean()


def step_inside(x):
    parameters = dict(NET.named_parameters())
    gradients = grad(lambda p: functional_call(NET, p, (x,)).pow(2).sum())(parameters)
    moved = {name: p - 0.1 * gradients[name] for name, p in parameters.items()}
    return functional_call(NET, moved, (x,)).pow(2).sum()


def penalty_on_gradients_of_samples(x):
    def loss(parameters, v):
        return functional_call(NET, parameters, (v,)).pow(2).sum()

    made = vmap(grad(loss), in_dims=(None, 0))(dict(NET.named_parameters()), x)
    return sum(g.pow(2).sum() for g in made.values())


def without_gradients_around(x):
    with torch.no_grad():
        inner = grad(lambda a: (a**2).sum())(x)
    return x.sum() + inner.sum()


def back(x):
    value, pull = vjp(lambda a: a.sin() * a.sum(), x)
    return value, pull(Y)


def potential(positions):
    distances = (positions[:, None] - positions[None]).pow(2).sum(-1) + torch.eye(len(positions))
    return NET(positions).sum() + (1 / distances).sum()


def energy_and_forces(positions):
    positions = positions.detach().requires_grad_(True)
    energy = potential(positions)
    (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
    return energy, -gradient


PROGRAMS = {
    "forces": (energy_and_forces, X),
    "forces by grad": (lambda x: grad_and_value(potential)(x), X),
    "forces of many": (lambda x: vmap(grad_and_value(potential))(torch.stack([x, 2 * x])), X),
    "jacobian of a module": (lambda x: vmap(jacrev(NET))(x), X),
    "vmap": (lambda x: vmap(lambda a, b: (a * b).sin().sum())(x, Y), X),
    "grad": (lambda x: grad(lambda a: (a.sin() ** 3).sum())(x), X),
    "grad with aux": (lambda x: grad(lambda a: ((a**3).sum(), a * 2), has_aux=True)(x), X),
    "rows": (rows(lambda a: (a.sin() ** 2).sum()), X),
    "hessian": (lambda v: hessian(lambda a: (a.sin() ** 3).sum())(v), V),
    "jacrev": (lambda v: jacrev(lambda a: a.sin() * a.sum())(v), V),
    "jacfwd": (lambda v: jacfwd(lambda a: a.sin() * a.sum())(v), V),
    "jvp": (lambda x: jvp(lambda a: a.sin() * a.sum(), (x,), (Y,)), X),
    "vjp": (back, X),
    "module": (lambda x: vmap(NET)(x), X),
    "gradient of a module": (rows(lambda v: NET(v).pow(2).sum()), X),
    "laplacian": (lambda x: vmap(lambda v: torch.trace(hessian(lambda u: NET(u).sum())(v)))(x), X),
    "residual": (residual, X[:, :2]),
    "step inside": (step_inside, X),
    "penalty": (penalty_on_gradients_of_samples, X),
    "ensemble": (lambda x: vmap(lambda p, b: functional_call(EMPTY, (p, b), (x,)))(*STACKED), X),
    "no_grad": (without_gradients_around, X),
    "write inside": (rows(lambda a: (a * 1).mul_(2).sin().sum()), X),
    "softmax": (lambda x: vmap(hessian(lambda a: F.softmax(a, 0)[0]))(x), X),
    "layer norm": (rows(lambda a: F.layer_norm(a, (4,)).pow(3).sum()), X),
    "attention": (lambda x: vmap(lambda q: F.scaled_dot_product_attention(q, q, q))(x), SQUARE),
    "convolution": (rows(lambda a: F.conv2d(a, torch.ones(2, 1, 3, 3)).sin().sum()), SQUARE),
    "index": (rows(lambda a: (a[1] * a[2:]).sum()), X),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name):
    program, x = PROGRAMS[name]
    parameters = [*NET.parameters(), *SCALAR.parameters(), *STACKED[0].values()]

    def side(function):
        given = x.clone().requires_grad_()
        for p in parameters:
            p.grad = None
        outs = tree_leaves(function(given))
        sum((o * torch.linspace(0.5, 1.5, o.numel()).view(o.shape)).sum() for o in outs).backward()
        return outs, [p.grad for p in (given, *parameters)]

    wanted, jitted = side(program), jit_for_test(program)
    for _ in range(2):
        made = side(jitted)
        for ours, theirs in zip((*made[0], *made[1]), (*wanted[0], *wanted[1]), strict=True):
            assert (ours is None) is (theirs is None)
            if ours is not None:
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
                assert ours.requires_grad is theirs.requires_grad
    assert not jitted.explanation.breaks and not jitted.explanation.plain
