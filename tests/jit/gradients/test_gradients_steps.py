"""Whole training steps in one jitted function, and optimizers beside compiled gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.jit.gradients.training import same_training

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4))


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("clip", [False, True])
def test_a_whole_step(name, clip):
    def program(jit):
        model = network()
        optimizer = OPTIMIZERS[name](model.parameters())

        @jit
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            return loss.detach()

        losses = []
        for _ in range(5):
            x = torch.randn(6, 8)
            losses.append(step(x, x.argmax(1) % 4))
        return losses, list(model.parameters())

    same_training(program, plain=None)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_jitted_optimizer_beside_a_jitted_model(name):
    def program(jit):
        model = network()
        optimizer = OPTIMIZERS[name](model.parameters())
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        jit(model)
        step = jit(optimizer.step)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(torch.ones(6, 8)).square().mean()
            loss.backward()
            step()
            schedule.step()
            losses.append(loss.item())
        return losses, list(model.parameters())

    same_training(program, plain=None)


def test_gradients_that_add_up():
    def program(jit):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @jit
        def step(batches):
            optimizer.zero_grad(set_to_none=False)
            total = 0.0
            for x in batches:
                loss = model(x).square().mean() / len(batches)
                loss.backward()
                total += loss.item()
            optimizer.step()
            return total

        return [step([torch.randn(6, 8) for _ in range(3)]) for _ in range(4)], list(
            model.parameters()
        )

    same_training(program, plain=None)


def test_two_networks_against_each_other():
    def program(jit):
        maker, critic = (
            nn.Linear(4, 8),
            nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(), nn.Linear(8, 1)),
        )
        jit(maker)
        jit(critic)
        first = torch.optim.SGD(maker.parameters(), lr=0.1)
        second = torch.optim.SGD(critic.parameters(), lr=0.1)
        losses = []
        for _ in range(4):
            made = maker(torch.randn(6, 4))
            second.zero_grad()
            loss = (
                F.softplus(-critic(torch.randn(6, 8))).mean()
                + F.softplus(critic(made.detach())).mean()
            )
            loss.backward()
            second.step()
            first.zero_grad()
            other = F.softplus(-critic(made)).mean()
            other.backward()
            first.step()
            losses += [loss.item(), other.item()]
        return losses, list(maker.parameters()), list(critic.parameters())

    same_training(program)
