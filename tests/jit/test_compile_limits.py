"""Compiling takes time and text in proportion to the program."""

import resource
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom


def spent():
    """Seconds of this process and the compilers that it started, which other processes do not lengthen."""
    return time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def compiled(fn, *args):
    """Seconds and characters of kernels that a first call takes; its result is eager's."""
    jitted = frameloom.jit(fn)
    start = spent()
    with torch.no_grad():
        result = jitted(*args)
        torch.testing.assert_close(result, fn(*args), rtol=1e-4, atol=1e-5)
    seconds = spent() - start
    return seconds, sum(len(k.source) for k in frameloom.explain(fn)(*args).kernels)


def means(n):
    def f(x):
        for _ in range(n):
            x = x - x.mean(1, keepdim=True) * 0.1
        return x

    return f, torch.rand(8, 8)


def selections(n):
    def f(x):
        pieces = []
        for i in range(n):
            s = x[x > i / n]
            pieces.append(s.topk(min(40, s.shape[0]))[0])
        return torch.cat(pieces) * 2

    return f, torch.rand(100)


def dense_block(n):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolutions = nn.ModuleList(nn.Conv2d(4 + 2 * i, 2, 1) for i in range(n))

        def forward(self, x):
            features = [x]
            for c in self.convolutions:
                features.append(c(torch.relu(torch.cat(features, 1))))
            return torch.cat(features, 1)

    return Block().eval(), torch.rand(2, 4, 16, 16)


@pytest.mark.parametrize(("make", "n"), [(means, 40), (selections, 8)])
def test_text_grows_with_the_program(make, n):
    _, some = compiled(*make(n))
    _, more = compiled(*make(2 * n))
    assert more < 3 * some


def test_windows_of_poolings():
    x = torch.rand(1, 4, 24, 24)
    for pool in (
        lambda x: F.max_pool2d(x, 5, 1, 2),
        lambda x: -F.max_pool2d(-x, 7, 1, 3),
        lambda x: F.max_pool3d(x[None], 3, 2, 1),
    ):
        assert compiled(pool, x)[0] < 6


def test_long_programs():
    assert compiled(*means(200))[0] < 10
    assert compiled(*selections(20))[0] < 15
    assert compiled(*dense_block(24))[0] < 40


def residual_states(x, w):
    states, before = [], x
    for _ in range(40):
        before, x = x, (x * w).sin() + before
        states.append(x)
    return states


def states_behind_a_step(x, w):
    (x * w).sum().backward()
    states = []
    for _ in range(150):
        x = (x * w).sin()
        states.append(x)
    return states


def pieces_behind_a_step(x, w):
    (x * w).sum().backward()
    return x.split(1)[-1], list((x * w).split(1))


def layers_with_caches(x, w):
    caches, x, w = [], x.view(100, 4), w[:48].view(4, 12)
    for _ in range(25):
        q, k, v = (x @ w).chunk(3, -1)
        x = x + (q * k).softmax(-1) * v
        caches.append((k, v))
    return x, caches


def steps_of_a_network(x, w):
    w, state = w.view(20, 20), torch.zeros(2, 20)
    for _ in range(60):
        state = torch.tanh(state @ w + x[:20]) * torch.sigmoid(state @ w)
    return state


def many_pieces(x, w):
    return torch.stack([x * k for k in range(60)]), torch.cat([p * 2 for p in w.split(1)])


@pytest.mark.parametrize(
    "fn",
    [
        residual_states,
        states_behind_a_step,
        pieces_behind_a_step,
        layers_with_caches,
        steps_of_a_network,
        many_pieces,
    ],
)
def test_many_results_with_histories(fn):
    x, w = (torch.rand(400, requires_grad=True) for _ in range(2))
    start = spent()
    result = frameloom.jit(fn)(x, w)
    (result if isinstance(result, torch.Tensor) else result[0]).sum().backward()
    assert spent() - start < 8
