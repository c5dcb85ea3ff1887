"""Models and optimizers that are dropped take their memory along, and hooks set or removed later count from the next call on."""

import gc
import weakref

import pytest
import torch
from torch import nn

import frameloom
from tests.jit.gradients.training import same_training


def network():
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 2))


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def trained(jit, how):
    """Everything a training made, after three steps, and what has to stay meanwhile."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    run = step
    if how == "module":
        jit(model)
    elif how == "step":
        run = jit(step)
    elif how == "closure":
        inside = jit(lambda x: step(model, optimizer, x))
        run = lambda model, optimizer, x: inside(x)
    elif how == "optimizer":
        jit(model)
        optimizer_step = jit(optimizer.step)

        def run(model, optimizer, x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer_step()
            return loss.detach()

    for _ in range(3):
        run(model, optimizer, torch.randn(5, 6))
    return model, optimizer, run


@pytest.mark.parametrize("how", ["module", "step", "closure", "optimizer"])
def test_what_is_dropped_is_freed(how):
    with torch.enable_grad():
        model, optimizer, run = trained(frameloom.jit, how)
    tensors = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())]
    tensors += [t for state in optimizer.state.values() for t in state.values()]
    references = [weakref.ref(t) for t in (model, optimizer, *tensors)]
    kept = (
        run if how == "step" else None
    )  # a jitted function of its own outlives what it was called with
    del model, optimizer, tensors, run
    gc.collect()
    alive = [type(r()).__name__ for r in references if r() is not None]
    assert not alive
    assert kept is None or frameloom.stats()["graphs"]


@pytest.mark.parametrize("how", ["module", "step"])
def test_hooks_set_and_removed_later(how):
    def program(jit):
        model, optimizer, run = trained(jit, how)
        seen, losses = [], []

        def of_module(module, args, out):
            seen.append(("module", tuple(out.shape)))
            return out * 0.5

        def of_gradient(gradient):
            seen.append(("gradient", tuple(gradient.shape)))
            return gradient * 2

        setters = [
            lambda: model[0].register_forward_hook(of_module),
            lambda: model[0].weight.register_hook(of_gradient),
            lambda: model[3].bias.register_post_accumulate_grad_hook(lambda p: seen.append("after")),
            lambda: model.register_full_backward_hook(lambda m, i, o: seen.append("backward")),
            lambda: optimizer.register_step_post_hook(lambda o, a, k: seen.append("step")),
        ]  # fmt: skip
        for setter in setters:
            handle = setter()
            for _ in range(4):
                losses.append(run(model, optimizer, torch.randn(5, 6)))
                if len(losses) % 4 == 2:
                    handle.remove()
                seen.append(len(seen))
        return seen, losses, list(model.parameters())

    same_training(program, plain=None)
