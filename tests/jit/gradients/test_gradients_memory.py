"""What a forward and a backward pass take of memory at their worst, beside eager: what is saved goes after its last use."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from tests.memory import peak_bytes

pytestmark = pytest.mark.compiled

MARGIN = 1.02


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


def convolutions(c):
    layers = []
    for k in range(3):
        layers += [nn.Conv2d(3 if k == 0 else c, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 4))


MODELS = {
    "linear": (lambda: nn.Sequential(*[nn.Linear(128, 128) for _ in range(6)]), (512, 128)),
    "blocks": (lambda: nn.Sequential(*[Block(64) for _ in range(3)]), (512, 64)),
    "a pyramid": (lambda: nn.Sequential(*[nn.Sequential(nn.Linear(1024 >> k, 512 >> k), nn.Tanh()) for k in range(6)]), (1024, 1024)),
    "convolutions": (lambda: convolutions(16), (4, 3, 48, 48)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_step_needs_no_more_memory_than_in_eager(name):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), torch.randn(shape)

    def step():
        model.zero_grad(set_to_none=True)
        model(x).square().mean().backward()

    with torch.enable_grad():
        step()
        eager = peak_bytes(step)
        frameloom.jit(model)
        step()
        compiled = peak_bytes(step)
    assert compiled <= eager * MARGIN, f"{compiled / eager:.3f} of eager's"


def test_what_is_saved_is_there_for_another_pass_if_that_is_asked_for():
    x = torch.randn(64, 64, requires_grad=True)
    with torch.enable_grad():
        y = frameloom.jit(lambda x: (x.exp() @ x.sin()).tanh().sum())(x)
        first = torch.autograd.grad(y, x, retain_graph=True)[0]
        assert torch.equal(first, torch.autograd.grad(y, x)[0])
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(y, x)
