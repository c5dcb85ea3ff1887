"""The gradients that Functions of the program give lie as those that come to them: zeros for missing ones are contiguous, however the results lie."""

import pytest
import torch

from tests.helpers import jit_for_test


class Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return y + 1, x * 1

    @staticmethod
    def backward(ctx, g, h):
        return h * 1, g


class Computed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return y + 1, x.clone()

    @staticmethod
    def backward(ctx, g, h):
        return h.exp(), g.t().exp().t()


LAYOUTS = {
    "plain": lambda: torch.ones(4, 8),
    "transposed": lambda: torch.ones(8, 4).t(),
    "with gaps": lambda: torch.ones(4, 16)[:, ::2],
    "a row": lambda: torch.ones(1, 8),
    "a transposed column": lambda: torch.ones(8, 1).t(),
    "a part of a column": lambda: torch.ones(8, 2)[:, :1].t(),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", [Swap, Computed])
def test_strides_of_gradients(function, layout, dynamic):
    def layouts(f):
        x, y = (LAYOUTS[layout]().requires_grad_() for _ in range(2))
        first, second = f(x, y)
        like, ones = torch.ones_like(first), torch.ones(first.shape)
        passes = [(first.sum(), None), (second.sum(), None), (second, like), (first, ones)]
        passes.append(((first, second), (like, ones)))
        return [
            [g.stride() for g in torch.autograd.grad(of, (x, y), given, retain_graph=True)]
            for of, given in passes
        ]

    wanted = layouts(function.apply)
    f = jit_for_test(lambda x, y: function.apply(x, y), dynamic=dynamic)
    assert [layouts(f) for _ in range(2)] == [wanted] * 2
