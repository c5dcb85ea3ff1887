"""Ops that write the tensor that they read: what eager refuses is refused, and what it gives depends on its order."""

import pytest
import torch

from tests.helpers import check


def zeros(x):
    return torch.zeros_like(x, dtype=torch.int64)


ROWS = torch.tensor([0, 1])
OPS = {
    "scatter_add_": lambda x: x.scatter_add_(0, zeros(x), x),
    "scatter_": lambda x: x.scatter_(0, zeros(x), x),
    "scatter_reduce_": lambda x: x.scatter_reduce_(0, zeros(x), x, "sum"),
    "scatter of a view": lambda x: x.scatter_add_(0, zeros(x), x.view(2, 2)),
    "index_add_": lambda x: x.index_add_(0, ROWS, x),
    "index_copy_": lambda x: x.index_copy_(0, ROWS, x),
    "index_put_": lambda x: x.index_put_((ROWS,), x),
    "put_": lambda x: x.put_(torch.arange(4), x),
    "gather": lambda x: torch.gather(x, 0, zeros(x), out=x),
    "take": lambda x: torch.take(x, zeros(x), out=x),
    "index_select": lambda x: torch.index_select(x, 0, ROWS, out=x),
    "mm": lambda x: torch.mm(x, x, out=x),
    "bmm": lambda x: torch.bmm(x[None], x[None], out=x[None]),
    "addmm_": lambda x: x.addmm_(x, x),
    "cumsum": lambda x: torch.cumsum(x, 0, out=x),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, x[0, 0]),
    "where": lambda x: torch.where(x > 2, x, x + 1, out=x),
    "lerp_": lambda x: x.lerp_(x, x),
    "_foreach_mul_": lambda x: torch._foreach_mul_([x], [x]),
    "add_": lambda x: x.view(-1).add_(x.view(-1)),
}


@pytest.mark.parametrize("name", OPS)
def test_as_plain(name):
    check(OPS[name], torch.tensor([[3.0, 1.0], [2.0, 5.0]]), calls=1)


@pytest.mark.parametrize("shape", [(), (5,)])
def test_a_write_that_comes_to_a_number_waits_for_what_others_read(shape):
    """What the write does with the old value is known only once the condition is part of it."""

    def fn(x, y):
        t = torch.atan2(y, x)
        u = t.exp()
        t.fill_(0).add_(3)
        x.masked_fill_(t > 1, 5.0)
        return u, t

    check(fn, torch.ones(shape), torch.full(shape, 2.0), calls=1)


@pytest.mark.compiled
@pytest.mark.parametrize("rows", [2, 3, 20])
def test_a_copy_that_no_reduction_decides_is_written_beside_those_that_wait(rows):
    """It takes no part in the sums behind which the pieces of `x` are written, one after the other."""

    def fn(x, before):
        before.copy_(x)
        x.sub_(x.mean())
        x[1:].add_(x.sum())

    check(fn, torch.ones(rows, 3), torch.zeros(rows, 3), calls=1)
