"""A program may replace the functions of `operator`: what Frameloom knows of operators must not change with them."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import pytest
import torch

from frameloom import jit
from tests import fresh

PROGRAM = """
import operator, torch
operator.add = lambda a, b: a - b
from frameloom import jit
print(jit(lambda x: sum([x, x, x]) + 1)(torch.ones(1)).item())
"""


@pytest.fixture
def minus_for_add() -> Iterator[None]:
    before = operator.add
    operator.add = lambda a, b: a - b
    yield
    operator.add = before


def total(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return sum([x, x, x]), operator.add(x, 1)


def test_operators_that_are_not_replaced() -> None:
    compiled, x = jit(total), torch.ones(2)
    assert [t.tolist() for t in compiled(x)] == [[3, 3], [2, 2]]


def test_operators_that_are_replaced(minus_for_add: None) -> None:
    compiled, x = jit(total), torch.ones(2)
    assert [t.tolist() for t in compiled(x)] == [[3, 3], [0, 0]]


def test_operators_replaced_before_the_first_compile() -> None:
    run = fresh.run(PROGRAM, check=True)
    assert run.stdout == "4.0\n"
