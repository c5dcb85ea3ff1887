"""Writes to strided parts of tensors in any layout, where sizes vary: nothing beside them changes, and they read what was there."""

import pytest
import torch

import frameloom
from tests.observe import assert_same_call, observe

WRITES = {
    "copy_flip": lambda x: x.copy_(x.flip(0)),
    "triu": lambda x: x.triu_(1),
    "sums": lambda x: x.sub_(x.sum(0, keepdim=True)),
}
PARTS = {
    "every_third": lambda x: x[::3],
    "both": lambda x: x[1::2, 1:],
    "transposed": lambda x: x.t()[::2],
}
LAYOUTS = {
    "transposed": lambda a, b: torch.arange(float(a * b)).reshape(a, b).t(),
    "sliced": lambda a, b: torch.arange(float(4 * a * b)).reshape(2 * a, 2 * b)[::2, ::2].t(),
}
SIZES = [(5, 4), (2, 2), (3, 5), (6, 3), (4, 1), (7, 7)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", WRITES)
def test_write_to_a_strided_part(name, part, layout):
    def f(x):
        WRITES[name](PARTS[part](x))
        return x + 0

    jitted = frameloom.jit(f, dynamic=True)
    for a, b in SIZES:
        make = lambda: (LAYOUTS[layout](a, b),)
        assert_same_call(observe(jitted, make), observe(f, make), f"{a} x {b}")


def test_the_last_row_where_the_number_of_elements_is_known():
    """What the product of both sizes is stands in an index that is divided by one of them."""

    def fn(z):
        sorted([z.numel(), 1])
        z.mul_(2)
        z[-1].neg_()
        return (z + 1)[-1]

    jitted = frameloom.jit(fn, dynamic=True)
    for shape in [(3, 4), (4, 3), (2, 6), (5, 4), (12, 1)]:
        got, want = (torch.arange(float(shape[0] * shape[1])).view(shape) for _ in range(2))
        assert torch.equal(jitted(got), fn(want))
        assert torch.equal(got, want)
