"""Derivatives of extremes and middles of whole tensors, which PyTorch computes otherwise for subclasses than for plain tensors."""

import pytest
import torch

import frameloom

NAN, INF = float("nan"), float("inf")
FUNCTIONS = {
    "max": lambda x: x.max(),
    "min": lambda x: x.min() * 2,
    "median": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(),
    "two": lambda x: x.max() * x.min(),
    "softmax by hand": lambda x: (x - x.max()).exp().sum(),
}
VALUES = {
    "several": [1, 2, 2, 0, 5, 5],
    "NaN": [NAN, 1, 2, NAN, 0, 0],
    "infinite": [INF, INF, 1, 0, -INF, -INF],
    "equal": [3] * 6,
}


@pytest.mark.parametrize("backend", [None, "eager"])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_where_the_gradient_goes_and_how_it_lies(fn, values, backend):
    options = {} if backend is None else {"backend": backend}

    def seen(side):
        found = []
        for transposed in (False, True):
            for given in (1.0, INF, NAN, 0.0):
                x = torch.tensor(values).view(2, 3)
                x = (x.t().contiguous().t() if transposed else x).double().requires_grad_()
                (made,) = torch.autograd.grad(side(x), x, torch.tensor(given).double())
                found.append((made.stride(), made))
        return found

    for (strides, a), (wanted, b) in zip(seen(frameloom.jit(fn, **options)), seen(fn), strict=True):
        assert strides == wanted
        torch.testing.assert_close(a, b, equal_nan=True)
