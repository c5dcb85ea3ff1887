"""The gradient of what a mask selects lies as what it selects from, also in dimensions of size 1."""

import pytest
import torch

from frameloom import jit

FUNCTIONS = {
    "masked_select": lambda x: x.masked_select(x > 0.5),
    "of a row": lambda x: x.masked_select(x[:1] > 0.5),
    "index": lambda x: x[x > 0.5],
    "combinations": lambda x: torch.combinations(x.flatten(), 1),
}
LAYOUTS = [
    ((1, 3), (7, 1)), ((3, 1), (1, 5)), ((1, 1), (3, 4)), ((2, 1, 3), (3, 9, 1)), ((2, 3), (3, 1)),
    ((2, 3), (1, 2)), ((2, 3), (7, 2)), ((3,), (2,)), ((1,), (5,)), ((1, 3), (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides(name, dynamic):
    function = FUNCTIONS[name]
    jitted = jit(function, dynamic=dynamic)
    for shape, strides in LAYOUTS:
        memory = torch.rand(40)

        def gradient(fn, memory=memory, shape=shape, strides=strides):
            x = memory.as_strided(shape, strides).detach().requires_grad_()
            y = fn(x)
            (found,) = torch.autograd.grad(y, x, torch.ones_like(y))
            return found

        ours, eagers = gradient(jitted), gradient(function)
        torch.testing.assert_close(ours, eagers)
        assert ours.stride() == eagers.stride(), (shape, strides)
