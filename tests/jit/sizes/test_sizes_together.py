"""Sizes that are equal in more than form, and sizes that vary because others do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import frameloom
from frameloom import jit
from tests.observe import assert_same_call, observe

PAIRS = [(4, 7, 3), (2, 5, 6), (3, 1, 2), (1, 4, 1), (1, 1, 1), (5, 2, 8)]


@pytest.mark.parametrize("first", [True, False])
@torch.no_grad()
def test_attention_of_two_lengths(first):
    frameloom.reset()
    module = nn.MultiheadAttention(8, 2, batch_first=first).eval()
    jitted = jit(lambda x, y: module(x, y, y))
    for b, n, m in PAIRS:
        x, y = (torch.rand((b, k, 8) if first else (k, b, 8)) for k in (n, m))
        torch.testing.assert_close(jitted(x, y), module(x, y, y))
    assert frameloom.stats()["graphs"] == 2


@torch.no_grad()
def test_a_mask_is_viewed_by_sizes_of_another_tensor():
    def fn(x, mask):
        n = x.shape[1]
        return x[:, None] + mask.view(1, 1, n, n).expand(x.shape[0], -1, -1, -1)

    frameloom.reset()
    jitted = jit(fn)
    for b, n, _ in PAIRS:
        x, mask = torch.rand(b, n, 1), torch.rand(n, n)
        torch.testing.assert_close(jitted(x, mask), fn(x, mask))
    assert frameloom.stats()["graphs"] == 2
    # Other shapes of as many elements.
    x, mask = torch.rand(2, 6, 1), torch.rand(4, 9)
    torch.testing.assert_close(jitted(x, mask), fn(x, mask))


@torch.no_grad()
def test_a_leading_size_that_another_one_has_to_equal():
    frameloom.reset()
    jitted = jit(lambda x, index: x[:, :1] * index)
    for b, n in [(3, 4), (3, 2), (5, 2), (1, 3), (4, 4)]:
        x, index = torch.rand(b, 6), torch.randint(0, 6, (b, n))
        torch.testing.assert_close(jitted(x, index), x[:, :1] * index)
    assert frameloom.stats()["graphs"] == 2


class Cache:
    def __init__(self):
        self.keys = torch.rand(2, 3, 4)
        self.more = [torch.rand(2, 3)]
        self.table = {"a": torch.rand(3)}

    def append(self, x):
        self.keys = torch.cat([self.keys, x], 1)
        self.more[0] = torch.cat([self.more[0], x[:, :, 0]], 1)
        self.table["a"] = torch.cat([self.table["a"], x[0, :, 0]])
        return self.keys.sum(1) + self.more[0].sum() + self.table["a"].sum()


@torch.no_grad()
def test_what_a_call_leaves_larger_than_it_found_varies_from_the_start():
    frameloom.reset()
    torch.manual_seed(0)
    mine = Cache()
    torch.manual_seed(0)
    own = Cache()
    jitted = jit(lambda cache, x: cache.append(x))
    for _ in range(6):
        x = torch.rand(2, 1, 4)
        torch.testing.assert_close(jitted(mine, x), own.append(x))
        assert torch.equal(mine.keys, own.keys) and torch.equal(mine.more[0], own.more[0])
        assert torch.equal(mine.table["a"], own.table["a"])
    assert frameloom.stats()["graphs"] == 1


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("lies", [(0, 1, 2, 3), (0, 3, 1, 2)])
@pytest.mark.parametrize("gradient", [False, True])
def test_smoothed_resizing(mode, lies, gradient):
    frameloom.reset()
    table = torch.rand([(1, 3, 5, 7)[lies.index(d)] for d in range(4)]).permute(lies)

    jitted = jit(lambda x, y: F.interpolate(y, size=x.shape[2:], mode=mode, antialias=True) * 2)
    for h, w in [(4, 4), (8, 6), (5, 9), (1, 1), (12, 1)]:
        mine, own = (table.detach().requires_grad_(gradient) for _ in range(2))
        found = jitted(torch.rand(1, 3, h, w), mine)
        wanted = F.interpolate(own, size=(h, w), mode=mode, antialias=True) * 2
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()
        if gradient:
            found.sum().backward()
            wanted.sum().backward()
            torch.testing.assert_close(mine.grad, own.grad)
    assert frameloom.stats()["graphs"] == 2


def fails(x):
    if torch.compiler.is_compiling():
        return x.view(x.shape[0], -1, 4)[:, 2] * 2
    return x.view(x.shape[0], -1, 4)[:, 2].tolist()


@pytest.mark.parametrize("first", [(0, 8), (2, 8)])
@torch.no_grad()
def test_a_first_call_that_fails(first):
    frameloom.reset()
    jitted = jit(fails)
    x = torch.rand(first)
    assert_same_call(observe(jitted, (x,), {}), observe(fails, (x,), {}), "first")
    graphs = frameloom.stats()["graphs"]
    for b in (2, 3, 1, 5):
        x = torch.rand(b, 12)
        assert torch.equal(jitted(x), x[:, 8:] * 2)
    assert frameloom.stats()["graphs"] - graphs <= 2


def test_gradients_lie_as_where_one_batch_is_not_summed():
    def fn(x, token, table):
        return torch.cat([token.expand(x.shape[0], -1, -1), x], 1) * 2 + table

    jitted = jit(fn)
    for b in (3, 4, 1, 2):
        x, token, table = torch.rand(b, 4, 8), torch.rand(1, 1, 8), torch.rand(1, 5, 8)
        found = []
        for call in (jitted, fn):
            given = [p.detach().requires_grad_() for p in (token, table)]
            call(x, *given).square().sum().backward()
            found.append([p.grad for p in given])
        for mine, own in zip(*found, strict=True):
            torch.testing.assert_close(mine, own)
            assert mine.stride() == own.stride(), b


@pytest.mark.parametrize("keepdim", [False, True])
@torch.no_grad()
def test_folds_of_permuted_tensors_lie_as_eager(keepdim):
    def fn(x):
        y = x.permute(2, 0, 1)
        return y.sum(-1, keepdim), y.mean(1, keepdim), y.amax(0, keepdim), y.max(2, keepdim), y.any(1, keepdim)  # fmt: skip

    jitted = jit(fn)
    for shape in [(3, 4, 5), (4, 6, 7), (2, 3, 9)]:
        x = torch.rand(shape)
        assert_same_call(observe(jitted, (x,), {}), observe(fn, (x,), {}), str(shape))
