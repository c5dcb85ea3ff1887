"""Numbers that a dtype does not hold: PyTorch raises, or wraps them around, and so does a compiled call."""

import pytest
import torch
import torch.nn.functional as F

import frameloom
from frameloom import jit
from tests.observe import assert_same_call, observe

X = torch.tensor([0.5, -1.0, 2.0])
FLOATS = (1.5, 2.5, 1e300, -1e300, 7e4, float("inf"), float("nan"), 3.5)
INTS = (3, 5, 300, -200, 2**40, 2**70, -5)


def bytes_(x):
    return x.to(torch.int8)


PROGRAMS = {
    "full": lambda x, n: torch.full((2,), n),
    "full of halves": lambda x, n: torch.full((2,), n, dtype=torch.float16),
    "full of bytes": lambda x, n: torch.full((2,), n, dtype=torch.int8),
    "full_like": lambda x, n: torch.full_like(x, n),
    "fill_": lambda x, n: (x + 1).fill_(n),
    "an item": lambda x, n: x.clone().index_fill(0, torch.tensor([0]), n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "masked_fill of halves": lambda x, n: x.half().masked_fill(x > 0, n),
    "masked_fill of bytes": lambda x, n: bytes_(x).masked_fill(x > 0, n),
    "where": lambda x, n: torch.where(x > 0, x, n),
    "add": lambda x, n: x + n,
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "clamp": lambda x, n: x.clamp(max=n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "full of ints": lambda x, n: torch.full((n, 2) if n in (3, 5) else (2,), n),
    "divided": lambda x, n: x // n,
    "halves": lambda x, n: x.half() * n,
    "bytes added": lambda x, n: bytes_(x) + n,
    "bytes compared": lambda x, n: bytes_(x) > n,
    "bytes clamped": lambda x, n: bytes_(x).clamp(max=n),
    "bytes chosen": lambda x, n: torch.where(x > 0, bytes_(x), n),
    "bytes multiplied and added": lambda x, n: bytes_(x).addcmul(bytes_(x), bytes_(x), value=n),
    "ints multiplied and added": lambda x, n: x.long().addcmul(x.long(), x.long(), value=n),
    "bytes beyond a threshold": lambda x, n: F.threshold(bytes_(x), 1, n),
    "a new tensor": lambda x, n: x.new_tensor(n),
    "a new tensor of a list": lambda x, n: x.long().new_tensor([n, 1]),
    "an array": lambda x, n: torch.asarray([n], dtype=torch.float32),
    "a tensor of bytes": lambda x, n: torch.tensor([n], dtype=torch.int8),
    "a tensor of bools": lambda x, n: torch.tensor([n], dtype=torch.bool),
    "a complex tensor": lambda x, n: torch.tensor([n, 1j]),
    "an index in a list": lambda x, n: x[[n, 0]],
    "indices in a list": lambda x, n: (x + 1).index_put_((torch.tensor([0]),), x[[1, n]][:1]),
}


@pytest.mark.parametrize("numbers", [FLOATS, INTS], ids=["floats", "ints"])
@pytest.mark.parametrize("dynamic", [False, None])
@pytest.mark.parametrize("name", PROGRAMS)
@torch.no_grad()
def test_numbers_beyond_the_dtype(name, dynamic, numbers):
    frameloom.reset()
    program = PROGRAMS[name]
    f = jit(program, dynamic=dynamic)
    for n in numbers:
        assert_same_call(observe(f, (X, n), {}), observe(program, (X, n), {}), f"{name} {n}")


@pytest.mark.parametrize(
    "fn", [F.hardshrink, F.softshrink, F.threshold], ids=lambda fn: fn.__name__
)
def test_limits_are_rounded_as_the_tensor_is(fn):
    x = torch.tensor([0.1, -0.1, 0.0996, 0.2, -0.3]).bfloat16().repeat(9).requires_grad_()
    others = (0.5,) if fn is F.threshold else ()
    mine, own = jit(lambda x: fn(x, 0.1, *others))(x), fn(x, 0.1, *others)
    assert torch.equal(mine, own)
    assert torch.equal(*(torch.autograd.grad(y.sum(), x)[0] for y in (mine, own)))


@pytest.mark.parametrize("name", ["full", "full_like", "leaky_relu", "masked_fill of bytes"])
def test_two_graphs_for_numbers_that_vary(name):
    frameloom.reset()
    f = jit(PROGRAMS[name])
    for n in (3, 5, 9, 2, 11) if "bytes" in name else (1.5, 2.5, 3.5, 0.25, 7.0):
        f(X, n)
    assert frameloom.stats()["graphs"] == 2


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_constants_beyond_the_dtype_wrap_around(dtype):
    """As constants of kernels, too, which are computed with while compiling."""
    x = torch.arange(5).to(dtype)
    for fn in (lambda x: x * 0 + 70000, lambda x: (x * 0 + 300) * 2 - 70000):
        assert torch.equal(jit(fn)(x), fn(x))


FILLED = {
    "masked_fill": lambda x, v: x.masked_fill(x > 0, v),
    "masked_fill_": lambda x, v: x.masked_fill_(x > 0, v),
    "index_fill": lambda x, v: x.index_fill(0, torch.tensor([0]), v),
    "index_fill_": lambda x, v: x.index_fill_(0, torch.tensor([0]), v),
    "known": lambda x, v: x.masked_fill(x > 0, torch.tensor(float("-inf"))),
    "known, complex": lambda x, v: x.masked_fill(x > 0, torch.tensor(1j)),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float32, torch.float16])
@pytest.mark.parametrize("name", FILLED)
def test_numbers_of_tensors_beyond_the_dtype(name, dtype):
    """What is filled with takes the number out of its tensor, and raises."""
    program = FILLED[name]
    f, x = jit(program), torch.tensor([1, -2, 3]).to(dtype)
    for value in (2, 300, 1e300, float("nan"), float("inf"), 1j, 2 + 0j, True, -1, 2.5):
        for given in (torch.tensor(value), torch.tensor([[value]])):
            if isinstance(value, float):
                given = given.double()
            wanted = observe(program, (x, given))
            assert_same_call(observe(f, (x, given)), wanted, f"{name} {given}")
