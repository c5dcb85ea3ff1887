"""`w.data = other` between a call and its backward pass: the plan must not read `other` as if it had the sizes of `w`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from frameloom import jit


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * w).sin() * w


def outcome(fn: Callable[..., torch.Tensor], n: int, other: torch.Tensor) -> str | None:
    x, w = torch.ones(n, requires_grad=True), torch.ones(n, requires_grad=True)
    out = fn(x, w)
    w.data = other
    try:
        out.sum().backward()
    except RuntimeError as error:
        return str(error)
    return None


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("size", [2, 3000])
def test_other_sizes_raise_as_in_plain_pytorch(size: int, dynamic: bool | None) -> None:
    compiled = jit(product, dynamic=dynamic)
    for n in (1000, 1001, 1002):
        other = torch.ones(size)
        expected = outcome(product, n, other)
        assert expected is not None and outcome(compiled, n, other) == expected
        assert outcome(compiled, n, torch.ones(n)) is None


@pytest.mark.parametrize("dynamic", [None, True])
def test_other_strides(dynamic: bool | None) -> None:
    compiled = jit(product, dynamic=dynamic)
    for n in (4, 5, 6):
        grads = []
        for fn in (product, compiled):
            x, w = (torch.ones(n, n + 1).requires_grad_() for _ in range(2))
            out = fn(x, w)
            w.data = torch.arange(n * (n + 1.0)).view(n + 1, n).t().mul_(0).add_(1)
            out.sum().backward()
            grads.append((x.grad, w.grad))
        torch.testing.assert_close(*grads)
