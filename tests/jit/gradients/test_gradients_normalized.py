"""Functions behind normalisations: what their derivatives read is computed again from the statistics, and not kept."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from tests.jit.gradients.training import caught, same_training

NORMS = {
    "batch": lambda: nn.BatchNorm2d(8),
    "batch, plain": lambda: nn.BatchNorm2d(8, affine=False, track_running_stats=False),
    "group": lambda: nn.GroupNorm(2, 8),
    "layer": lambda: nn.LayerNorm([8, 6, 6]),
    "layer, no bias": lambda: nn.LayerNorm(6, bias=False),
}
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

FUNCTIONS = {
    "silu": F.silu,
    "hardswish_": lambda x: F.hardswish(x, inplace=True),
    "gelu": F.gelu,
    "mish": F.mish,
    "elu_": lambda x: F.elu(x, inplace=True),
}


class Net(nn.Module):
    def __init__(self, norm, function):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3, padding=1, bias=False), NORMS[norm](), nn.Conv2d(8, 2, 1)  # fmt: skip
        for p in self.norm.parameters():
            nn.init.normal_(p)
        self.function = FUNCTIONS[function]

    def forward(self, x):
        return self.last(self.function(self.norm(self.first(x))))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("norm", NORMS)
def test_as_in_eager(norm, function):
    def program(jit):
        net, x = Net(norm, function), torch.randn(2, 3, 6, 6, requires_grad=True)
        jit(net)
        seen = []
        for _ in range(2):
            net.zero_grad()
            y = net(x)
            y.square().sum().backward()
            seen.append((y, x.grad, [p.grad for p in net.parameters()]))
        return seen

    same_training(program, graphs=1)


@pytest.mark.parametrize("norm", NORMS)
def test_one_tensor_less_is_kept(norm):
    net, x = Net(norm, "hardswish_"), torch.randn(2, 3, 6, 6)
    with torch.enable_grad():
        out = frameloom.jit(net)(x)
    saved = out.grad_fn.saved_tensors
    large = [t for t in saved if t.numel() == 2 * 8 * 6 * 6]
    assert len(large) == 2  # what the convolutions make and take


def test_the_bits_are_those_of_the_forward_pass():
    """A derivative that is 0 or 1 by the sign of values that are often 0."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.BatchNorm1d(16), nn.Hardshrink(0.3))
    x = torch.randn(64, 16)
    outs = []
    for model in (net, frameloom.jit(copy.deepcopy(net))):
        a = x.clone().requires_grad_()
        with torch.enable_grad():
            y = model(a)
            (g,) = torch.autograd.grad(y, model[0].bias, torch.ones_like(y), retain_graph=True)
        outs.append(((y != 0).sum(0), g))
    # The derivative of the bias counts the elements that came through.
    assert torch.equal(outs[1][0].float(), outs[1][1])
    assert torch.equal(outs[0][1], outs[1][1])


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_parameters_changed_before_the_backward_pass(name):
    def program(jit):
        net, x = Net("batch", "silu"), torch.randn(2, 3, 6, 6)
        jit(net)
        y = net(x).sum()
        with torch.no_grad():
            getattr(net.norm, name).add_(1)
        error = caught(y.backward)
        return error[0] if error else [p.grad for p in net.parameters()]

    same_training(program)


def test_a_value_that_is_a_result_too():
    def program(jit):
        norm, x = nn.BatchNorm2d(8), torch.randn(2, 8, 4, 4, requires_grad=True)

        @jit
        def fn(x):
            y = norm(x)
            return y, F.silu(y)

        y, z = fn(x)
        (y.sin() + z).sum().backward()
        return y, z, x.grad, [p.grad for p in norm.parameters()]

    same_training(program, graphs=1)
