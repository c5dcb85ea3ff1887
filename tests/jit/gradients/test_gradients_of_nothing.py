"""Passes that come to a node without a gradient, behind a Function that gives none: autograd runs it nevertheless."""

import pytest
import torch

import frameloom
from tests.jit.gradients.training import caught, leaf, same_training

pytestmark = pytest.mark.filterwarnings("ignore:.*frameloom")
SEEN = []


class Stops(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, g):
        return None


class Constant(torch.autograd.Function):
    """Its gradient does not depend on what comes to it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return torch.ones_like(ctx.saved_tensors[0])


class BareConstant(Constant):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return Constant.forward(ctx, x)


class Logs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        SEEN.append(g.tolist())
        return g


def around(function, apart=False):
    def run(x):
        y = function(x)
        if apart:
            print(end="")  # a break
        return Stops.apply(y) + x

    return run


def written(x):
    """What the first node saved is changed before the pass comes to it."""
    y = x.exp()
    print(end="")
    z = Stops.apply(y)
    y.mul_(2)
    return z + x


PROGRAMS = {
    "constant": around(Constant.apply),
    "constant, none is filled in": around(BareConstant.apply),
    "constant, apart": around(Constant.apply, apart=True),
    "constant of a result": around(lambda x: Constant.apply(x.sin()), apart=True),
    "behind a constant": around(lambda x: Constant.apply(x).exp(), apart=True),
    "of two results": lambda x: (
        y := Constant.apply(x),
        z := y * 3,
        print(end=""),
        Stops.apply(y) + Stops.apply(z) + x,
    )[-1],
    "an effect": around(Logs.apply),
    "what is saved is written": written,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_comes(name):
    def program(jit):
        SEEN.clear()
        f, x = jit(PROGRAMS[name]), leaf(3)
        out = f(x * 1)
        return caught(lambda: out.sum().backward()), x.grad, list(SEEN)

    same_training(program, plain=None)


@pytest.mark.parametrize("how", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_are_called(how):
    def program(jit):
        f, x, y, seen = jit(lambda x, y: Stops.apply(x) + y), leaf(3), leaf(3), []
        for _ in range(2):
            handle = getattr(x, how)(lambda given: seen.append(given is None))
            f(x, y).sum().backward()
            handle.remove()
        return seen, x.grad, y.grad

    same_training(program)
    assert frameloom.stats()["breaks"] == 0
