"""Writes at places that data decides, on a GPU."""

import pytest
import torch

import frameloom
from tests.helpers import check, jit_for_test

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def indices(extent, *shape):
    return torch.randint(0, extent, shape, device="cuda")


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64],
    ids=str,
)
def test_sums_of_any_type(dtype):
    # Small integers: exact in any order.
    x, v = (torch.randint(0, 3, (n, 33), device="cuda").to(dtype) for n in (70, 150))
    i = indices(70, 150)
    calls = [
        lambda x, v: x.index_add(0, i, v),
        lambda x, v: x.scatter_add(0, i[:, None].expand(150, 33), v),
        lambda x, v: x[:, 0].scatter_add(0, i, v[:, 0]),
    ]
    for f in calls:
        check(f, x, v)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_any_dimension(dim):
    x, v = torch.randn(50, 60, 70, device="cuda"), torch.randn(40, 50, 400, device="cuda")
    i = indices(50, 30, 50, 60)
    check(lambda x, v: x.scatter_add(dim, i, v) * 2, x, v, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.float32], ids=str)
def test_places_are_set(dtype):
    x, v = (torch.randn(n, 40, device="cuda").to(dtype) for n in (300, 200))
    i = torch.randperm(300, device="cuda")[:200]
    check(lambda x, v: x.index_copy(0, i, v), x, v)
    check(lambda x, v: x.index_put((i - 300,), v), x, v)
    check(lambda x, v: x.scatter(0, i[:, None].expand(200, 40), v), x, v)
    check(lambda x, v: x.index_fill(0, i, 1), x, v)


@pytest.mark.parametrize("kind", ["sum", "mean", "amax", "amin", "prod"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_reductions(kind, include_self, dtype):
    x, v = (torch.randint(1, 4, (n,), device="cuda").to(dtype) for n in (500, 900))
    i = indices(500, 900)
    check(lambda x, v: x.scatter_reduce(0, i, v, kind, include_self=include_self), x, v)


def test_many_to_one_place():
    x, v = torch.zeros(3, device="cuda"), torch.ones(1 << 20, device="cuda")
    check(lambda x, v: x.index_put((torch.zeros_like(v, dtype=torch.long),), v, True), x, v)
    check(lambda x, v: x.scatter_add(0, torch.zeros_like(v, dtype=torch.long), v), x, v)


def test_an_input_is_changed_in_place():
    def step(cache, key, at):
        cache[:, :, at] = key
        return (cache * 2).sum(-1)

    cache, key = torch.randn(2, 3, 80, 64, device="cuda"), torch.randn(2, 3, 1, 64, device="cuda")
    at = torch.tensor([7], device="cuda")
    check(step, cache, key, at, rtol=1e-4, atol=1e-4)
    check(lambda x, i, v: x.index_add_(0, i, v), cache, at % 2, key[:1].expand(1, 3, 80, 64))


def test_what_comes_before_and_behind():
    x, v, i = (
        torch.randn(64, 96, device="cuda"),
        torch.randn(500, 96, device="cuda"),
        indices(64, 500),
    )
    check(lambda x, v: torch.relu(x.exp().index_add(0, i, v.sin() * 2)), x, v, rtol=1e-4, atol=1e-4)


def test_sorted_sums_are_the_librarys():
    x, v, i = (
        torch.randn(64, 96, device="cuda"),
        torch.randn(500, 96, device="cuda"),
        indices(64, 500),
    )
    found = jit_for_test(lambda x, v: x.index_put((i,), v, True))
    first = found(x, v)
    assert all(torch.equal(found(x, v), first) for _ in range(5))
    backward = torch.ops.aten.embedding_dense_backward
    check(lambda v: backward(v, i, 64, 3, False), v)


def test_deterministic_algorithms_are_the_librarys():
    x, v, i = (
        torch.randn(64, 96, device="cuda"),
        torch.randn(500, 96, device="cuda"),
        indices(64, 500),
    )
    jitted = frameloom.jit(lambda x, v: x.index_add(0, i, v))
    jitted(x, v)
    torch.use_deterministic_algorithms(True)
    try:
        first = jitted(x, v)
        assert all(torch.equal(jitted(x, v), first) for _ in range(5))
        assert torch.equal(first, x.index_add(0, i, v))
    finally:
        torch.use_deterministic_algorithms(False)


def test_nothing_to_write():
    none = torch.empty(0, dtype=torch.long, device="cuda")
    check(
        lambda x: x.index_add(0, none, torch.empty(0, 5, device="cuda")) * 2,
        torch.randn(4, 5, device="cuda"),
    )


def test_gradients_of_gathers_are_the_same_every_time():
    """Eager sorts the indices, so that the sums do not depend on which thread comes first."""
    x = torch.randn(50, 40, device="cuda", requires_grad=True)
    i, j = indices(50, 3000), indices(40, 3000)

    def f(x):
        with torch.enable_grad():
            y = (x[i] * x[:, j].sum(0)[:, None] * x[i, j][:, None]).sum()
            return torch.autograd.grad(y, x)[0]

    jitted = jit_for_test(f, fullgraph=True)
    first = jitted(x)
    torch.testing.assert_close(first, f(x), rtol=1e-4, atol=1e-2)
    assert all(torch.equal(jitted(x), first) for _ in range(5))
