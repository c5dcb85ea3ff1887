"""Matrix products said again (capture/symbolic/products.py) are PyTorch's own: values, strides, and what gradients flow through."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import frameloom
from frameloom import jit
from frameloom.capture.symbolic import products

SHAPES = (
    ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((3, 4), (4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)),
    ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 5)), ((2, 3, 4), (1, 4, 5)),
    ((6, 1, 3, 4), (2, 4, 5)), ((2, 3, 4), (6, 2, 4, 5)), ((2, 1, 3, 4), (1, 6, 4, 5)), ((1, 1, 4), (4, 1)), ((5, 2, 3, 4), (4,)),
)  # fmt: skip


def laid_out(shape, order, grad):
    made = torch.randn(shape)
    if order == "swapped" and len(shape) > 1:
        made = made.transpose(-1, -2).contiguous().transpose(-1, -2)
    if order == "outer" and len(shape) > 2:
        made = made.transpose(0, 1).contiguous().transpose(0, 1)
    return made.requires_grad_(grad)


@pytest.mark.parametrize("a, b", SHAPES, ids=str)
def test_said_again(a, b):
    for one, two in itertools.product(("plain", "swapped", "outer"), repeat=2):
        for grads in itertools.product((False, True), repeat=2):
            x, y = laid_out(a, one, grads[0]), laid_out(b, two, grads[1])
            got, want = products.matmul(x, y), torch.matmul(x, y)
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride() and got.requires_grad == want.requires_grad
            wanted = [t for t in (x, y) if t.requires_grad]
            if wanted:
                weights = torch.randn_like(want)
                first, second = (torch.autograd.grad(out, wanted, weights) for out in (got, want))
                torch.testing.assert_close(first, second)


def test_linear():
    w, b = torch.randn(5, 4), torch.randn(5)
    for shape in ((3, 4), (2, 3, 4), (6, 2, 3, 4)):
        for order in ("plain", "swapped", "outer"):
            x = laid_out(shape, order, False)
            for bias in (None, b):
                got, want = products.linear(x, w, bias), F.linear(x, w, bias)
                if got is not NotImplemented:
                    torch.testing.assert_close(got, want)
                    assert got.stride() == want.stride()


PROGRAMS = {
    "matrix": (lambda x, w: x @ w, lambda b, s: (torch.randn(b, s, 6), torch.randn(6, 5))),
    "vector": (lambda x, w: x @ w, lambda b, s: (torch.randn(b, s, 6), torch.randn(6))),
    "batches": (
        lambda x, y: torch.matmul(x, y.transpose(-1, -2)),
        lambda b, s: (torch.randn(b, 3, s, 6), torch.randn(b, 3, s, 6)),
    ),
    "one_for_all": (
        lambda x, y: x.matmul(y),
        lambda b, s: (torch.randn(b, 1, s, 6), torch.randn(3, 6, s)),
    ),
    "transposed": (
        lambda x, w, b: F.linear(x.transpose(0, 1), w, b),
        lambda b, s: (torch.randn(b, s, 6), torch.randn(5, 6), torch.randn(5)),
    ),
}


LAYER = torch.nn.MultiheadAttention(8, 2, batch_first=True)
PROGRAMS["layer"] = (lambda x: LAYER(x, x, x)[0], lambda b, s: (torch.randn(b, s, 8),))
PROGRAMS["layer_without_weights"] = (
    lambda x: LAYER(x, x, x, need_weights=False)[0],
    lambda b, s: (torch.randn(b, s, 8),),
)


@pytest.mark.parametrize("asks", (False, True))
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_compiles(name, asks, monkeypatch):
    monkeypatch.setattr(products, "ASKS_FOR_SIZES", asks or products.ASKS_FOR_SIZES)
    fn, arguments = PROGRAMS[name]
    for grad in (False, True):
        frameloom.reset()
        jitted = jit(fn)
        for b, s in ((2, 3), (4, 5), (7, 2), (3, 30), (5, 17)):
            args = [t.requires_grad_(grad) for t in arguments(b, s)]
            got, want = jitted(*args), fn(*args)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            assert got.stride() == want.stride()
            if grad:
                first, second = (
                    torch.autograd.grad(out.square().sum(), args) for out in (got, want)
                )
                torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-4)
        assert frameloom.stats()["graphs"] == 2 and not frameloom.stats()["breaks"]


UNDER_AUTOCAST = [
    lambda x, y: x @ y,
    lambda x, y: x @ y[:, 0],
    lambda x, y: x[0] @ y[:, 0],
    lambda x, y: torch.linalg.vecdot(x, y) + x[0].matmul(y),
    lambda x, y: F.linear(x[None].mT, y, y[0]),
]


@pytest.mark.parametrize("asks", (False, True))
@pytest.mark.parametrize("dtype", (torch.float16, torch.float32, torch.float64))
@pytest.mark.parametrize("fn", UNDER_AUTOCAST)
def test_autocast_casts_for_products_that_are_said_again(fn, dtype, asks, monkeypatch):
    monkeypatch.setattr(products, "ASKS_FOR_SIZES", asks or products.ASKS_FOR_SIZES)
    jitted = jit(fn, dynamic=True)
    for n in (3, 4):
        x, y = (torch.ones(n, n, dtype=dtype, requires_grad=True) for _ in range(2))
        with torch.autocast("cpu"):
            got, want = jitted(x, y), fn(x, y)
        assert got.dtype is want.dtype
        assert torch.equal(got, want)
        first, second = (torch.autograd.grad(out.sum(), (x, y)) for out in (got, want))
        torch.testing.assert_close(first, second)
