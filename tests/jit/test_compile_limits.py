"""Compiling takes time and text in proportion to the program."""

import resource
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom

pytestmark = pytest.mark.compiled


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


def assert_grows_with_the_program(seconds_of, n, factor=3):
    """Twice the program takes at most `factor` times as long, a second is left to the machine; and no program is slow by itself."""
    some = seconds_of(n // 2)
    more = seconds_of(n)
    assert more < factor * some + 1, f"{some:.1f} s for {n // 2} steps, {more:.1f} s for {n}"
    assert more < 40


@pytest.mark.parametrize(
    "pool",
    [
        lambda x, n: F.max_pool2d(x, 2 * n - 1, 1, n - 1),
        lambda x, n: -F.max_pool2d(-x, 2 * n - 1, 1, n - 1),
        lambda x, n: F.max_pool3d(x[None], n, 2, n // 2),
    ],
)
def test_windows_of_poolings(pool):
    x = torch.rand(1, 4, 24, 24)
    assert_grows_with_the_program(lambda n: compiled(pool, x, n)[0], 4)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.bool])
def test_masks_of_positions_beside_narrow_elements(dtype):
    """g++ took 20 s for masks in vectors of 64 bytes."""

    def seconds(dtype):
        def write_pieces(x):
            for k, piece in enumerate(x.split(1)):
                piece.copy_(x[k - 1] == k)
            return x

        return compiled(lambda x: write_pieces(x.clone()), torch.ones(32, dtype=dtype))[0]

    assert seconds(dtype) < 3 * seconds(torch.float32) + 1


@pytest.mark.parametrize(
    ("make", "n", "factor"),
    # A layer of the block reads all layers before it.
    [(means, 200, 3), (selections, 20, 3), (dense_block, 24, 6)],
)
def test_long_programs(make, n, factor):
    assert_grows_with_the_program(lambda n: compiled(*make(n))[0], n, factor)


def residual_states(x, w, n):
    states, before = [], x
    for _ in range(n):
        before, x = x, (x * w).sin() + before
        states.append(x)
    return states


def states_behind_a_step(x, w, n):
    (x * w).sum().backward()
    states = []
    for _ in range(n):
        x = (x * w).sin()
        states.append(x)
    return states


def pieces_behind_a_step(x, w, n):
    (x * w).sum().backward()
    x, w = x[:n], w[:n]
    return x.split(1)[-1], list((x * w).split(1))


def layers_with_caches(x, w, n):
    caches, x, w = [], x.view(100, 4), w[:48].view(4, 12)
    for _ in range(n):
        q, k, v = (x @ w).chunk(3, -1)
        x = x + (q * k).softmax(-1) * v
        caches.append((k, v))
    return x, caches


def steps_of_a_network(x, w, n):
    w, state = w.view(20, 20), torch.zeros(2, 20)
    for _ in range(n):
        state = torch.tanh(state @ w + x[:20]) * torch.sigmoid(state @ w)
    return state


def many_pieces(x, w, n):
    return torch.stack([x * k for k in range(n)]), torch.cat([p * 2 for p in w[: 6 * n].split(1)])


@pytest.mark.parametrize(
    ("fn", "n"),
    [
        (residual_states, 40),
        (states_behind_a_step, 150),
        (pieces_behind_a_step, 400),
        (layers_with_caches, 25),
        (steps_of_a_network, 60),
        (many_pieces, 60),
    ],
)
def test_many_results_with_histories(fn, n):
    def seconds(n):
        x, w = (torch.rand(400, requires_grad=True) for _ in range(2))
        start = spent()
        result = frameloom.jit(fn)(x, w, n)
        (result if isinstance(result, torch.Tensor) else result[0]).sum().backward()
        return spent() - start

    assert_grows_with_the_program(seconds, n)
