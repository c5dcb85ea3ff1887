"""Zeros without memory, which the derivative of `sgn` gives: kernels are not given any."""

import math

import pytest
import torch

import frameloom

FUNCTIONS = {
    "alone": lambda x: x.sgn(),
    "behind a function": lambda x: x.exp().sgn(),
    "infinite factor": lambda x: (x * math.inf).sgn(),
    "beside another": lambda x: x.exp().sgn() + x.sin(),
    "a product": lambda x: x.t().sgn() * x,
    "of a view": lambda x: x.view(-1).sgn(),
    "of a sum": lambda x: x.sum(0).sgn(),
    "two": lambda x: x.sgn() - x.sin().sgn(),
    "twice": lambda x: x.exp().sgn().exp().sgn(),
    "in place": lambda x: x.clone().sgn_(),
    "cat": lambda x: torch.cat([x.sgn(), x]),
    "matrices": lambda x: (x @ x).sgn() * x.sum(),
    "another dtype": lambda x: x.double().sgn(),
}


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"backend": "eager"}], ids=str)
@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_gradients(fn, options):
    def seen(side):
        found = []
        for _ in range(2):
            x = torch.linspace(0.1, 0.9, 9).view(3, 3).requires_grad_()
            (made,) = torch.autograd.grad(side(x).sum(), x)
            found.append(made + 0)  # with memory
        return found

    for a, b in zip(seen(frameloom.jit(fn, **options)), seen(fn), strict=True):
        torch.testing.assert_close(a, b)
