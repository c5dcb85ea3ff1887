"""Optimizers' steps as one graph each: step counters and learning rates that change compile nothing anew."""

import pytest
import torch

import frameloom
from frameloom import jit

OPTIMIZERS = [
    ("SGD", {}), ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), ("Adam", {}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {}), ("AdamW", {"foreach": False}), ("AdamW", {"maximize": True, "foreach": True}), ("Adagrad", {"lr_decay": 0.1}),
    ("Adadelta", {}), ("Adamax", {}), ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}), ("RAdam", {}), ("RAdam", {"foreach": True}),
    ("Adafactor", {}), ("Adafactor", {"foreach": True, "weight_decay": 0.1}), ("Adafactor", {"maximize": True, "foreach": False}), ("ASGD", {}), ("RMSprop", {"centered": True, "momentum": 0.5}), ("Rprop", {}), ("Adam", {"foreach": True, "betas": (0.0, 0.99)}),
    ("AdamW", {"fused": True, "amsgrad": True}), ("SGD", {"fused": True, "momentum": 0.9, "weight_decay": 0.1}), ("Adagrad", {"fused": True, "lr_decay": 0.1}),
]  # fmt: skip


def two_sides(name, **options):
    """(parameters, optimizer) twice, equal."""
    torch.manual_seed(0)
    start = [torch.randn(3, 4), torch.randn(5), torch.randn(2, 2, 2)]
    sides = []
    for _ in range(2):
        parameters = [torch.nn.Parameter(t.clone()) for t in start]
        sides.append((parameters, getattr(torch.optim, name)(parameters, **options)))
    return sides


def fill_gradients(parameters, seed):
    torch.manual_seed(seed)
    for p in parameters:
        p.grad = torch.randn_like(p)


def assert_same_state(one, other):
    (parameters, optimizer), (wanted, plain) = one, other
    torch.testing.assert_close(parameters, wanted, rtol=1e-5, atol=1e-6)
    for p, w in zip(parameters, wanted, strict=True):
        assert optimizer.state[p].keys() == plain.state[w].keys()
        for key, value in plain.state[w].items():
            torch.testing.assert_close(optimizer.state[p][key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_every_optimizer(name, options):
    sides = two_sides(name, lr=0.1, **options)
    frameloom.reset()
    step = jit(sides[0][1].step)
    for k in range(10):
        for run, (parameters, optimizer) in zip((step, sides[1][1].step), sides, strict=True):
            fill_gradients(parameters, k)
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (k + 1)
            run()
        assert_same_state(*sides)
    assert frameloom.stats()["graphs"] <= 3
    assert frameloom.stats()["breaks"] == 0


def test_a_hundred_learning_rates():
    sides = two_sides("AdamW", lr=0.1)
    frameloom.reset()
    step = jit(sides[0][1].step)
    for k in range(100):
        for run, (parameters, optimizer) in zip((step, sides[1][1].step), sides, strict=True):
            fill_gradients(parameters, k)
            optimizer.param_groups[0]["lr"] = 0.1 * 0.97**k
            run()
        if k == 1:
            compiled = frameloom.stats()["graphs"]
    assert_same_state(*sides)
    assert frameloom.stats()["graphs"] == compiled == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda k: 0.9**k),
        lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.3, total_steps=20),
    ],
)
def test_schedulers(make):
    sides = two_sides("Adam", lr=0.1)
    schedulers = [make(optimizer) for _, optimizer in sides]
    frameloom.reset()
    step = jit(sides[0][1].step)
    for k in range(12):
        for run, (parameters, _), scheduler in zip((step, sides[1][1].step), sides, schedulers, strict=True):  # fmt: skip
            fill_gradients(parameters, k)
            run()
            scheduler.step()
    assert_same_state(*sides)
    assert frameloom.stats()["graphs"] <= 3


def test_clipping_and_step_in_one_function():
    sides = two_sides("AdamW", lr=0.1)

    def update(parameters, optimizer, norm):
        total = torch.nn.utils.clip_grad_norm_(parameters, norm)
        optimizer.step()
        return total

    frameloom.reset()
    compiled = jit(update)
    for k in range(6):
        totals = []
        for run, (parameters, optimizer) in zip((compiled, update), sides, strict=True):
            fill_gradients(parameters, k)
            totals.append(run(parameters, optimizer, 0.5 + k))
        torch.testing.assert_close(*totals)
    assert_same_state(*sides)
    assert frameloom.stats()["graphs"] <= 3
