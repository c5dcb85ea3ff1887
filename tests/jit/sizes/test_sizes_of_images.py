"""Convolutions and norms of tensors that lie with their channels last, and complex views, where sizes vary."""

import pytest
import torch
from torch import nn

import frameloom
from frameloom import jit

EACH = nn.Conv2d(8, 8, 3, padding=1, groups=8)
ONE = nn.Conv2d(8, 6, 1)
STRIDED = nn.Conv2d(8, 6, 2, stride=2)
BACK = nn.ConvTranspose2d(8, 4, 2, stride=2)
LINE = nn.Conv1d(8, 8, 3)
NORM = nn.LayerNorm(8)
SHAPES = [(3, 6, 5), (4, 8, 7), (2, 4, 9), (1, 5, 5), (1, 2, 2), (20, 7, 3), (2, 8, 2), (5, 2, 8)]

# Of a batch of one, or a width of one, the gradient of eager's kernels has another stride in that dimension, for one of them where there are
# several threads: an entry of its own.
OTHERWISE_AT_1 = ("line", "one", "patches")


def last(x):
    return x.permute(0, 3, 1, 2)


PROGRAMS = {
    "each": (lambda x: EACH(last(x)), 2),
    "each_of_copy": (lambda x: EACH(last(x).contiguous()), 2),
    "one": (lambda x: ONE(last(x)), 2),
    "patches": (lambda x: STRIDED(last(NORM(x))).relu(), 4),
    "transposed": (lambda x: BACK(last(x)), 2),
    "normed": (lambda x: NORM(EACH(last(x)).permute(0, 2, 3, 1)), 2),
    "line": (lambda x: NORM(LINE(x.flatten(1, 2).transpose(1, 2)).transpose(1, 2)), 2),
    "complex": (
        lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (4, 2))) * 1j).flatten(-2),
        2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("gradient", [False, True])
def test_channels_last(name, gradient):
    frameloom.reset()
    fn, graphs = PROGRAMS[name]
    jitted = jit(fn)
    for shape in SHAPES:
        x = torch.rand(*shape, 8)
        mine, own = (x.clone().requires_grad_(gradient) for _ in range(2))
        with torch.set_grad_enabled(gradient):
            found, wanted = jitted(mine), fn(own)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
        assert found.stride() == wanted.stride(), shape
        if gradient:
            found.square().sum().backward()
            wanted.square().sum().backward()
            torch.testing.assert_close(mine.grad, own.grad, atol=1e-3, rtol=1e-4)
            assert mine.grad.stride() == own.grad.stride(), shape
    own_entry = gradient and name in OTHERWISE_AT_1
    assert frameloom.stats()["graphs"] <= graphs + own_entry


def test_images_padded_on_one_side():
    """By a slice up to the largest of all numbers."""
    f = lambda x, w: torch.nn.functional.conv2d(x, w, padding="same", dilation=2)
    g = frameloom.jit(f, dynamic=True)
    w = torch.ones(1, 1, 2, 3)
    for size in (5, 6):
        x = torch.ones(1, 1, size, 7)
        assert torch.equal(g(x, w), f(x, w))
