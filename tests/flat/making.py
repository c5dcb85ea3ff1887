"""What programs that are called very often are made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Call = Callable[[int], Any]
PROGRAMS: dict[str, tuple[Callable[[], Call], float]] = {}
SIZES = (0, 1, 3, 0, 7, 1, 2, 5)


def calls(share: float) -> Callable[[Callable[[], Call]], Callable[[], Call]]:
    def mark(make: Callable[[], Call]) -> Callable[[], Call]:
        PROGRAMS[make.__name__] = make, share
        return make

    return mark


every = calls(1.0)


def vectors(requires_grad: bool = False) -> list[torch.Tensor]:
    return [torch.randn(n, requires_grad=requires_grad) for n in SIZES]


def matrices(requires_grad: bool = False) -> list[torch.Tensor]:
    return [torch.randn(n, 3, requires_grad=requires_grad) for n in SIZES]


def of(xs: list[Any], k: int) -> Any:
    return xs[k % len(xs)]
