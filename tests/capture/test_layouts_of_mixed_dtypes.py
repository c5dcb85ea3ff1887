"""Layouts of results where operands have to be cast first, as the CPU's kernels do."""

import itertools

import pytest
import torch

from frameloom import jit

LAYOUTS = {
    "row": lambda dtype: torch.ones(1, 4, dtype=dtype).expand(3, 4),
    "column": lambda dtype: torch.ones(4, 1, dtype=dtype).expand(4, 3).t(),
    "one": lambda dtype: torch.ones(1, 1, dtype=dtype).expand(3, 4),
    "transposed": lambda dtype: torch.ones(4, 3, dtype=dtype).t(),
    "stepped": lambda dtype: torch.ones(4, 6, dtype=dtype)[:, ::2].t(),
}


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a * b,
        lambda a, b: a == b,
        lambda a, b: a / b,
        lambda a, b: torch.logical_and(a, b),
        lambda a, b: torch.where(a.bool(), a, b),
        lambda a, b: (a + 1.5) * b,
        lambda a, b: torch.add(b, a, alpha=2),
    ],
    ids=["mul", "eq", "div", "logical_and", "where", "number", "second"],
)
def test_repeated_operands_of_other_dtypes(fn):
    pairs = [
        [LAYOUTS[name](dtype) for name, dtype in zip(names, dtypes, strict=True)]
        for names in itertools.product(("row", "column", "one"), ("transposed", "stepped", "row"))
        for dtypes in ((torch.bool, torch.int64), (torch.int64, torch.float32), (torch.float32, torch.int64))
    ]  # fmt: skip

    def all_of(pairs):
        return [fn(a, b) for a, b in pairs]

    got = jit(all_of)(pairs)
    assert [t.stride() for t in got] == [t.stride() for t in all_of(pairs)]


def test_angle_of_complex_numbers():
    x = torch.ones(4, 3, dtype=torch.complex64).t()
    assert jit(lambda x: x.angle())(x).stride() == x.angle().stride()


def test_sizes_that_vary():
    for n in (3, 4, 5):
        mask, x = torch.ones(1, n, dtype=torch.bool).expand(3, n), torch.ones(n, 3).t()
        assert jit(lambda a, b: a * b, dynamic=True)(mask, x).stride() == (mask * x).stride()
