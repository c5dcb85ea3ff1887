"""Casts of weights that no result depends on: autocast keeps them all the same, and what comes behind finds them."""

import pytest
import torch

from frameloom import jit


def change(w):
    with torch.no_grad():
        w.mul_(2)


def behind_a_break(w, x):
    x @ w
    change(w)
    print(end="")
    return x @ w


def before_a_break(w, x):
    x @ w
    print(end="")
    change(w)
    return x @ w


def no_cast(w, x):
    change(w)
    print(end="")
    return x @ w


@pytest.mark.parametrize("fn", [behind_a_break, before_a_break, no_cast])
def test_a_cast_is_kept_from_a_product_that_nobody_reads(fn):
    def seen(f):
        w, x = torch.nn.Parameter(torch.ones(3, 3) / 3), torch.ones(2, 3)
        with torch.autocast("cpu"):
            return f(w, x).tolist(), (x @ w).tolist()

    f = jit(fn)
    assert [seen(f) for _ in range(3)] == [seen(fn)] * 3
