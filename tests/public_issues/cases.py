"""Programs that showed a wrong result or a crash of PyTorch's compiler, after its public issues; here they do what plain calls do.

A case is a function that gives the function to jit and the arguments of each call, made anew for each side.  Its number is that of the issue
(github.com/pytorch/pytorch/issues/NUMBER), of which the program is written down again, smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
import torch

import frameloom
from frameloom import debug
from tests.observe import assert_same_call, observe, seed


class Everything:
    def __contains__(self, item: object) -> bool:
        return True


@dataclass
class Case:
    make: Callable[[], tuple[Any, ...]]
    number: int
    grad: bool
    backward: bool
    options: dict[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        with patch.object(
            debug, "_noticed", Everything()
        ):  # what runs plainly says so, which plain calls don't
            self._run()

    def _run(self) -> None:
        sides = []
        for jitted in (False, True):
            seed(0)
            fn, *calls = self.make()
            fn = frameloom.jit(fn, **self.options) if jitted else fn
            if self.backward:
                fn = with_backward(fn)
            sides.append(
                [observe(fn, (lambda c=c: c), grad=self.grad or self.backward) for c in calls]
            )
        for n, (want, got) in enumerate(zip(*sides, strict=True)):
            assert_same_call(got, want, f"call {n}", rtol=1e-5, atol=1e-6)


def with_backward(fn: Any) -> Any:
    """Gradients of all results that have a history; they are compared with the arguments."""

    def call(*args: Any) -> Any:
        results = fn(*args)
        several = results if isinstance(results, tuple) else (results,)
        loss = sum(
            (t * t).abs().sum() for t in several if isinstance(t, torch.Tensor) and t.grad_fn
        )
        if isinstance(loss, torch.Tensor):
            loss.backward()
        return results

    return call


class Cases(list[Any]):
    """`@cases(number)` adds one; each test file has a list of its own."""

    def __call__(
        self, number: int, grad: bool = False, backward: bool = False, **options: Any
    ) -> Callable[[Any], Any]:
        def add(make: Any) -> Any:
            case = Case(make, number, grad, backward, options)
            self.append(pytest.param(case, id=f"{number}-{make.__name__}"))
            return make

        return add
