"""Gradients that are no plain tensors: zeros without memory, sparse ones, tensors of other classes."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing._internal.two_tensor import TwoTensor

import frameloom

GRADIENTS = {
    "zero": lambda: torch._efficientzerotensor((2, 2)),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "sparse rows": lambda: torch.eye(2).to_sparse_csr(),
    "expanded": lambda: torch.ones(()).expand(2, 2),
    "two": lambda: TwoTensor(torch.ones(2, 2), torch.full((2, 2), 3.0)),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, 2)),
    "conjugated": lambda: torch.full((2, 2), 1 + 2j).conj().imag,
    "transposed": lambda: torch.arange(4.0).reshape(2, 2).t(),
}
PROGRAMS = {
    "sin": lambda t, w: t.sin(),
    "product": lambda t, w: t * w,
    "matrix product": lambda t, w: t @ w,
    "sum": lambda t, w: t + w,
    "dropout": lambda t, w: F.dropout(t * w, 0.5),
    "two results": lambda t, w: (t * w, t.exp() * 2)[0],
    "view": lambda t, w: (t * 2).t(),
}


def described(x):
    if isinstance(x, TwoTensor):
        return described(x.a), described(x.b)
    if x is None:
        return 0
    return x.layout is torch.strided, x.to_dense().detach().clone()


def run(fn, gradient):
    torch.manual_seed(0)
    found = []
    for _ in range(2):
        t, w = (torch.rand(2, 2).requires_grad_() for _ in range(2))
        out = fn(t, w)
        try:
            for again in (True, False):
                out.backward(gradient(), retain_graph=again)
                found += [described(t.grad), described(w.grad)]
        except RuntimeError as error:
            found.append(len(type(error).__name__))
        found.append(torch.rand(1).item())
    return found


@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_as_eager(program, gradient):
    wanted = run(program, gradient)
    torch.testing.assert_close(run(frameloom.jit(program), gradient), wanted)
