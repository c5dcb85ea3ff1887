"""What nobody reads of an input that shares memory with one that is changed: autograd refuses some uses of it all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from frameloom import jit

Given = tuple[torch.Tensor, torch.Tensor]


def together() -> Given:
    x = torch.randn(4, 3, requires_grad=True)
    return x, x.detach()


def together_with_gaps() -> Given:
    x = torch.randn(8, 6)[::2, ::2].detach().requires_grad_()
    return x, x.detach()


def apart() -> Given:
    return torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)


def of_pieces(x: torch.Tensor, y: torch.Tensor) -> None:
    pieces = x.unbind(0)
    y[0] += 2
    torch.cat(pieces)


def of_a_piece(x: torch.Tensor, y: torch.Tensor) -> None:
    first, second = x.chunk(2)
    y.zero_()
    second.sum(0)


def of_a_view_without_gradients(x: torch.Tensor, y: torch.Tensor) -> None:
    with torch.no_grad():
        view = x[0]
    y += 2
    view.sin()


def of_what_is_saved(x: torch.Tensor, y: torch.Tensor) -> int:
    loss = (x * x).sum()
    y += 2
    torch.autograd.grad(loss, x)
    return 3


def handled(x: torch.Tensor, y: torch.Tensor) -> int:
    pieces = x.unbind(1)
    y += 2
    try:
        pieces[0].mul(pieces[1])
    except RuntimeError:
        return 1
    return 2


def outcome(fn: Callable[..., Any], given: Given) -> object:
    try:
        return fn(*given)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("order", [(together, apart), (apart, together), (together_with_gaps,)])
@pytest.mark.parametrize(
    "fn", [of_pieces, of_a_piece, of_a_view_without_gradients, of_what_is_saved, handled]
)
def test_a_use_that_is_refused_raises(
    fn: Callable[..., Any], order: tuple[Callable[[], Given], ...], dynamic: bool | None
) -> None:
    compiled = jit(fn, dynamic=dynamic)
    for make in (*order, *order):
        assert outcome(compiled, make()) == outcome(fn, make())
