"""Ints of the program that vary and are used as sizes and positions: an entry for the first, one for all others, and results as plain code gives them."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from frameloom import jit

X = torch.linspace(-3, 3, 60).view(30, 2).sin()
ROW = torch.linspace(-2, 2, 40).view(2, 20)
NUMBERS = (5, 7, 3, 1, 2, 12, 20, 9, 17)


def filled(y, n):
    y[:n] = 1.0
    y[n] = 7.0
    return y * 2


def cached(store, x, n):
    store[:, n : n + 2] = x[:2, None]
    return store.sum(), store


# Name: function, how many graphs it may take.
CASES = {
    "head": (lambda x, n: x[:n] * 2, 2),
    "tail": (lambda x, n: x[n:].cos() + 1, 2),
    "window": (lambda x, n: x[n : n + 5] * x[n + 1 : n + 6], 2),
    "but_last": (lambda x, n: x[:-n] * 2, 2),
    "mean_of_last": (lambda x, n: x[-n:].mean(0), 2),
    "narrow": (lambda x, n: x.narrow(0, n, 4) + x.narrow(0, 2, n).sum(), 2),
    "select": (lambda x, n: x[n] * 2, 2),
    "select_of_some": (lambda x, n: x[n, :1] + x[n - 1, None, 1] + x.t()[..., n], 2),
    "arange": (lambda x, n: torch.arange(n) * 2, 2),
    "arange_from": (lambda x, n: torch.arange(n, n + 5)[:, None] * x[0], 2),
    "zeros": (lambda x, n: torch.zeros(n, 3) + x[0, 0], 2),
    "full": (lambda x, n: torch.full((n, 2), 1.5) + torch.full((1, 2), n), 2),
    "view": (lambda x, n: ROW.view(-1)[: 2 * n].view(2, n) * 2, 2),
    "pad": (lambda x, n: F.pad(x, (0, n)) + 1, 2),
    "roll": (lambda x, n: x.roll(n, 0) * 2, 2),
    "triangle": (lambda x, n: (x @ x.t()).tril(n).triu(-n), 2),
    "expand": (lambda x, n: x[:1].expand(n, 2) + 1, 2),
    "repeat": (lambda x, n: x.repeat(1, n) + 1, 2),
    "repeat_interleave": (lambda x, n: x.repeat_interleave(n, 0) + 1, 2),
    "mask": (lambda x, n: x.masked_fill(torch.arange(30)[:, None] >= n, 0.0), 2),
    "average": (lambda x, n: x[:n].sum(0) / n, 2),
    "softmax": (lambda x, n: torch.softmax(x[:n], 0) / math.sqrt(n), 2),
    "written": (lambda x, n: filled(x.clone(), n), 2),
    "cache": (lambda x, n: cached(torch.zeros(2, 32, 2), x, n), 2),
    "split": (lambda x, n: [p * 2 for p in x.split([n, 30 - n])], 2),
    "topk": (lambda x, n: x.flatten().topk(n)[0], 2),
    "eye": (lambda x, n: torch.eye(n) * 2, 2),
    "causal": (lambda x, n: torch.full((n, n), float("-inf")).triu(1).softmax(-1), 2),
    "arithmetic": (lambda x, n: x[max(0, n - 4) : min(n, 30)] * (n // 2 + n % 5), 2),
    "of_a_float": (lambda x, n: x[: int(n * 0.5) + 1] * 2 + math.ceil(n / 2), 2),
    "attention": (lambda x, n: (x[:n] @ x[:n].t()).softmax(-1) @ x[:n], 2),
    "returned": (lambda x, n: (x[:n].shape[0] + 1, n, x[:n] + 1), 2),
    "branch": (lambda x, n: x[:n] * 2 if n > 10 else x[n:] + 1, 3),
    "odd": (lambda x, n: x[:n] * 2 if n % 2 else x[n:] + 1, 3),
    # How a transposed result of one row lies in memory is seen.
    "transposed": (lambda x, n: x[:n].reshape(-1).view(n, 2).t() + 1, 3),
}  # fmt: skip


def same(a, b):
    if isinstance(a, torch.Tensor):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert type(a) is type(b) and a == b


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_numbers_as_sizes(name):
    fn, most = CASES[name]
    frameloom.reset()
    jitted = jit(fn)
    for n in NUMBERS:
        same(jitted(X, n), fn(X, n))
    assert frameloom.stats()["graphs"] <= most
    assert not frameloom.stats()["breaks"]


@pytest.mark.parametrize("fn", [lambda x, n: x[:n] * 2, lambda x, n: x[n] + 1, lambda x, n: x[n:].sum(0), lambda x, n: torch.zeros(n, 2) + x[0]])  # fmt: skip
@torch.no_grad()
def test_negative_numbers_zero_and_numbers_out_of_range(fn):
    frameloom.reset()
    jitted = jit(fn)
    for n in (5, 7, 0, -1, 3, -4, 40, 1, -29, 8, -30, -31, 30, 29):
        try:
            want = fn(X, n)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                jitted(X, n)
            continue
        same(jitted(X, n), want)
    assert frameloom.stats()["graphs"] <= 5


def test_a_position_that_is_counted():
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.n, self.seen = 0, torch.zeros(20, 2)

        def forward(self, x):
            self.seen[self.n] = x
            self.n += 1
            done = self.seen[: self.n]
            return done.mean(0), done.shape[0], self.n

    plain, steps = Steps(), Steps()
    frameloom.reset()
    jitted = jit(steps)
    with torch.no_grad():
        for k in range(12):
            same(jitted(X[k]), plain(X[k]))
    assert frameloom.stats()["graphs"] <= 3


def test_a_size_is_that_from_before_the_call():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = torch.zeros(3, 2)

        def forward(self, x):
            before = self.rows.shape[0]
            self.rows = torch.cat([self.rows, x])
            return x * 2, before

    plain, cache = Cache(), Cache()
    jitted = jit(cache)
    with torch.no_grad():
        for _ in range(5):
            same(jitted(X), plain(X))


def test_a_number_that_is_used_as_both():
    def fn(x, n):
        return x[:n] * n + float(n), n * 10**30, f"{n}", [4, 5, 6, 7][n % 4]

    jitted = jit(fn)
    for n in NUMBERS:
        same(jitted(X, n), fn(X, n))


def test_sizes_as_floats():
    def fn(x):
        n = x.shape[0]
        n += 1
        return x * (1.0 / n) + n / 3, x[: int(n * 0.5)] / math.sqrt(n), float(n), n / 2

    frameloom.reset()
    jitted = jit(fn)
    for n in (3, 5, 9, 16):
        same(jitted(X[:n]), fn(X[:n]))
    assert frameloom.stats()["graphs"] == 2


GRADIENTS = {
    "head": (lambda x, w, n: (x[:n] @ w).relu().sum() / n, 2),
    "position": (lambda x, w, n: (x * w.t()[0] / x.shape[0])[n].sum() + (torch.arange(n) * w[0, 0]).sum(), 2),
    "size_as_float": (lambda x, w, n: (x * w.t()[0] * (1.0 / x.shape[0])).sum(), 2),
    "viewed": (lambda x, w, n: (x @ w)[:n].t(), 2),
    # A backward graph is not given what is computed: an entry for each.
    "of_a_float": (lambda x, w, n: (x[: int(n * 0.5) + 1] @ w).tanh().sum(), 5),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    fn, most = GRADIENTS[name]
    frameloom.reset()
    jitted = jit(fn)
    start = torch.randn(4, 5)
    for n in (3, 4, 6, 9, 2):
        x = torch.randn(10 + n, 4)
        found = []
        for f in (jitted, fn):
            w = start.clone().requires_grad_()
            y = f(x, w, n)
            y.sum().backward()
            found.append((y.detach(), w.grad))
        same(*found)
    assert frameloom.stats()["graphs"] <= most


SQUARE = torch.rand(12, 12)
BY_AN_INT = {
    "step": (lambda x, n: x[1::n] * 2, 3),
    "steps": (lambda x, n: x[None, ::n, ..., 1:-1:n].sin(), 3),
    "place": (lambda x, n: (x + 1)[None, n], 2),
    "places": (lambda x, n: (x + 1)[:, None, n, None][None, 1:], 2),
    "written": (lambda x, n: x.index_fill(0, torch.tensor([n, 1]), 2.0), 2),
    "range": (lambda x, n: torch.arange(0, 30, n) * 2, 2),
    "rows": (lambda x, n: x.reshape(n, -1).sin().sum(0), 2),
    "unflattened": (lambda x, n: x.unflatten(1, (n, -1)) + 1, 2),
    "diagonal": (lambda x, n: x.diagonal(n) * 2, 3),
    "below": (lambda x, n: x[None].diagonal(-n, -1, 1) * 2, 3),
    "windows": (lambda x, n: x.unfold(0, n, 1) * 2, 3),
    "windows_apart": (lambda x, n: x.t().unfold(-1, 2, n).sum(-1), 3),
    "bins": (lambda x, n: x.histc(n, 0, 1) + 0, 2),
    "listed": (lambda x, n: x + torch.tensor([n]), 2),
    "nested": (lambda x, n: x.sum() * torch.tensor([[n, 1], [2.5, n / 3]]), 2),
    "as_float": (lambda x, n: torch.as_tensor((n, x.shape[0]), dtype=torch.float32) / 7, 2),
    "shape": (lambda x, n: torch.tensor(x[:n].shape) * 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_AN_INT)
@pytest.mark.parametrize("gradient", [False, True])
def test_views_and_tensors_by_an_int(name, gradient):
    if gradient and name.startswith(("range", "bins", "as_float", "shape", "windows")):
        pytest.skip("no gradient flows, or an entry for each")
    frameloom.reset()
    fn, graphs = BY_AN_INT[name]
    jitted = frameloom.jit(fn)
    for n in (2, 3, 4, 1, 6, 2, 11):
        mine, own = (SQUARE.detach().clone().requires_grad_(gradient) for _ in range(2))
        try:
            wanted = fn(own, n)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                jitted(mine, n)
            continue
        found = jitted(mine, n)
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride(), n
        if gradient:
            found.square().sum().backward()
            wanted.square().sum().backward()
            torch.testing.assert_close(mine.grad, own.grad)
    assert frameloom.stats()["graphs"] <= graphs


def test_a_diagonal_without_elements_starts_where_the_tensor_does():
    def program(x, n):
        y = x * 2
        return y.diagonal(n), y[None].diagonal(-n, 1, 2)

    jitted = frameloom.jit(program)
    for n in (1, 2, 3, 4, 9):
        for found, wanted in zip(jitted(SQUARE, n), program(SQUARE, n), strict=True):
            assert (found.shape, found.storage_offset()) == (wanted.shape, wanted.storage_offset())


@torch.no_grad()
def test_writes_in_steps_of_an_int():
    def fn(x, n):
        x[::n] = 0
        y = x * 1
        y[1::2, ::n] += 3
        y.diagonal(n).fill_(7)
        return y

    jitted = frameloom.jit(fn)
    for n in (2, 3, 4, 1, 6):
        mine, own = SQUARE.clone(), SQUARE.clone()
        assert torch.equal(jitted(mine, n), fn(own, n)) and torch.equal(mine, own)


def test_ints_beyond_64_bits_are_no_sizes(recwarn):
    jitted = jit(lambda x, n: x[:n] * 2)
    for n in (5, 6, 1 << 63, 1 << 70, -(1 << 63) - 1, 3):
        torch.testing.assert_close(jitted(X, n), X[:n] * 2, rtol=0, atol=0)
    assert not [w for w in recwarn if "frameloom" in str(w.message) or "guards" in str(w.message)]


def test_a_number_that_is_computed_of_a_size_which_is_settled_later():
    """It becomes a value to fill with, whose limit is guarded, and then an op has to know the size."""

    def program(x, z):
        z.index_fill_(0, torch.tensor([0]), int(x.stride(0) / 2))
        return z, x[::2].flip(0) * 2

    jitted = jit(program, dynamic=True)
    for n in (5, 7, 5):
        x, z = (torch.zeros(2, k, dtype=torch.int16) for k in (n, 1))
        assert all(map(torch.equal, jitted(x, z.clone()), program(x, z)))


def test_a_number_of_a_size_that_is_settled_before_code_is_written():
    def program(x):
        y = x.shape[1] ** 0.5
        x[0:0] = 2
        return x + y

    x = torch.ones(2, 2, 2)[..., 0]
    assert torch.equal(jit(program, dynamic=True)(x), program(x))


def test_a_number_that_decides_a_size_and_that_no_op_is_given():
    def fn(x, n):
        part = x[:n].cumsum(0)
        torch.sin(x, out=part)  # what it held is not needed
        return part

    jitted = frameloom.jit(fn, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no failure of ours
        for size in (3, 4, 5):
            x = torch.rand(size)
            torch.testing.assert_close(jitted(x, size), fn(x, size))
    assert frameloom.stats()["plain"] == 0
