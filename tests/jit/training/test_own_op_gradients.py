"""Gradients of ops that other libraries register: where such an op has no derivative, autograd follows what its kernel calls."""

import warnings

import pytest
import torch

import frameloom
from tests.jit.gradients.training import caught, same_training

LIBRARY = torch.library.Library("frameloom_gradients", "FRAGMENT")
ops = torch.ops.frameloom_gradients


def twice(x):
    return x * 2


def defined(name, key, falls=False):
    LIBRARY.define(f"{name}(Tensor x) -> Tensor")
    LIBRARY.impl(name, twice, key)
    torch.library.register_fake(f"{LIBRARY.ns}::{name}", torch.empty_like, lib=LIBRARY)
    if falls:
        LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")


defined("any_device", "CompositeExplicitAutograd")
defined("of_cpu", "CPU")
defined("passed_on", "CPU", falls=True)
LIBRARY.define("order(Tensor x) -> Tensor")
LIBRARY.impl("order", torch.argsort, "CPU")
torch.library.register_fake(
    "frameloom_gradients::order", lambda x: torch.empty_like(x, dtype=torch.int64), lib=LIBRARY
)


@torch.library.custom_op("frameloom_gradients::of_formula", mutates_args=())
def of_formula(x: torch.Tensor) -> torch.Tensor:
    return x * 2


of_formula.register_fake(torch.empty_like)
of_formula.register_autograd(lambda ctx, gradient: gradient * 2)


def trained(fn, **counts):
    def program(jit):
        jitted, seen = jit(fn), []
        for _ in range(2):
            x = torch.arange(3.0, requires_grad=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch's, of such ops
                jitted(x).sum().backward()
            seen.append(x.grad)
        return seen

    same_training(program, **counts)


@pytest.mark.parametrize("name", ["any_device", "of_cpu", "passed_on"])
def test_the_kernel_is_followed(name):
    op = getattr(ops, name)
    trained(lambda x: op(x.sin()).cos() + x)


def test_an_op_with_a_formula_is_part_of_the_graph():
    trained(lambda x: of_formula(x.sin()).cos() + x, graphs=1)


def test_a_result_without_a_gradient_is_part_of_the_graph():
    trained(lambda x: ops.order(x) * x, graphs=1)


class Settings:
    factor = 2.0
    seen: list = []


@torch.library.custom_op("frameloom_gradients::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float = 3.0) -> torch.Tensor:
    return x * by


def keep(ctx, inputs, output):
    ctx.save_for_backward(output)
    ctx.by = inputs[1]


def derive(ctx, gradient):
    (result,) = ctx.saved_tensors
    return gradient * ctx.by + result, None


scaled.register_fake(lambda x, by=3.0: torch.empty_like(x))
scaled.register_autograd(derive, setup_context=keep)


@torch.library.custom_op("frameloom_gradients::telling", mutates_args=())
def telling(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def tell(ctx, gradient):
    Settings.seen.append("backward")
    return gradient * Settings.factor


telling.register_fake(torch.empty_like)
telling.register_autograd(tell)


@pytest.mark.parametrize(
    "fn", [scaled, lambda x: scaled(x.sin(), by=2.0) + 1, lambda x: scaled(scaled(x, 0.5)) * x]
)
def test_a_formula_with_a_context(fn):
    trained(lambda x: fn(x))
    assert frameloom.stats()["breaks"] == 0


def test_what_a_formula_reads_is_looked_at_again():
    def program(jit):
        jitted, seen = jit(lambda x: telling(x) * 2), []
        for Settings.factor in (2.0, 5.0, 2.0):
            x = torch.arange(3.0, requires_grad=True)
            jitted(x).sum().backward()
            seen.append(x.grad)
        return seen

    same_training(program)


def test_what_a_formula_does_is_done_in_each_pass():
    def program(jit):
        jitted, seen = jit(lambda x: telling(x) * 2), Settings.seen
        seen.clear()
        for _ in range(2):
            result = jitted(torch.arange(3.0, requires_grad=True)).sum()
            seen.append("forward")
            result.backward()
        return [*seen]

    same_training(program)


@torch.library.custom_op("frameloom_gradients::of_nothing", mutates_args=())
def of_nothing(x: torch.Tensor) -> torch.Tensor:
    return x * 2


of_nothing.register_fake(torch.empty_like)


def between(x):
    return of_nothing(x.sin()).cos() + x


def in_a_loop(x):
    for _ in range(3):
        x = of_nothing(x) + x
    return x


def in_a_call(x):
    return between(x) * 2


def beside(x):
    return of_nothing(x).sum().detach() + x.sin()


@pytest.mark.parametrize("graphs, fn", [(2, between), (1, in_a_loop), (2, in_a_call), (1, beside)])
def test_an_op_without_a_formula(graphs, fn):
    """It runs between two graphs; where no gradient needs it, it is a part of one. Iterations share a graph."""

    def program(jit):
        jitted, seen = jit(fn), []
        for size in (3, 3, 4):
            x = torch.arange(float(size), requires_grad=True)
            y = jitted(x)
            seen += [y.detach(), y.requires_grad, caught(y.sum().backward), x.grad]
            with torch.no_grad():
                seen.append(jitted(x))
        return seen

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        same_training(program)
    jitted = frameloom.jit(fn)
    frameloom.reset()
    jitted(torch.ones(3, requires_grad=True))
    stats = frameloom.stats()
    assert (stats["graphs"], stats["plain"]) == (graphs, 0)


def test_a_formula_that_is_registered_later():
    @torch.library.custom_op("frameloom_gradients::of_later", mutates_args=())
    def of_later(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    of_later.register_fake(torch.empty_like)
    jitted = frameloom.jit(lambda x: of_later(x.sin()).cos())
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        jitted(x).sum().backward()
    of_later.register_autograd(lambda ctx, gradient: gradient * 2)
    jitted(x).sum().backward()
    assert torch.allclose(x.grad, -(x.sin() * 2).sin() * 2 * x.cos())
