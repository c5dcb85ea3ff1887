"""Python's arithmetic on numbers that come out of tensors: as in plain Python, without a break where it cannot raise."""

import math

import pytest
import torch

import frameloom
from frameloom import jit
from tests.observe import assert_same_call, observe, same

COMPUTED = {
    "sum": lambda x: x.sum().item() * 2 + 1,
    "difference": lambda x: 3 - x.sum().item() / 7,
    "negative": lambda x: -x.max().item(),
    "two": lambda x: x.max().item() - x.min().item() * 0.1,
    "in place": lambda x: _in_place(x),
    "greatest": lambda x: max(1.0, x.max().item(), x.min().item()),
    "least": lambda x: min(x.sum().item(), 0.25),
    "order of nan": lambda x: (max(x.sum().item(), 2.0), max(2.0, x.sum().item()), min(2.0, x.sum().item())),
    "through": lambda x: 1.0 / max(0.5, x.sum().item()),
    "a factor": lambda x: x * (x.norm().item() / 3),
    "a factor, in place": lambda x: (y := x + 1, y.mul_(max(0.1, x.std().item())))[1],
    "a summand": lambda x: x + x.mean().item(),
    "taken from": lambda x: 1 + (x.mean().item() - x),
    "alpha": lambda x: torch.add(x, x.sin(), alpha=-x.norm().item() / 4),
    "alpha, in place": lambda x: (y := x + 1, y.sub_(x.cos(), alpha=x.norm().item()))[1],
    "lists": lambda x: (y := [x * 2, x + 1], torch._foreach_mul_(y, [x.norm().item(), 1 - x.mean().item()])),
    "double": lambda x: x.double() * x.double().sum().item(),
}  # fmt: skip


def _in_place(x):
    total = 0.0
    for row in x:
        total += row.sum().item()
    total *= 0.5
    return total


VALUES = {
    "plain": torch.linspace(-2, 3, 12).reshape(3, 4),
    "nan": torch.tensor([[1.0, math.nan], [2.0, -1.0]]),
    "inf": torch.tensor([[1.0, math.inf], [2.0, -1.0]]),
    "large": torch.full((2, 2), 3e38),
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", COMPUTED)
def test_one_graph(name, values):
    f, x = COMPUTED[name], VALUES[values]
    frameloom.reset()
    compiled = jit(f)
    for k in range(2):
        same(compiled(x + k), f(x + k), 1e-5, 1e-6, name)
    stats = frameloom.stats()
    assert stats["breaks"] == 0 and stats["graphs"] == 1, stats


def _outcome(f, x):
    try:
        return f(x)
    except Exception as error:
        return type(error), str(error)


LEFT = {
    "may divide by 0": lambda x: 1 / x.sum().item(),
    "a power": lambda x: x.sum().item() ** 0.5,
    "an int": lambda x: x.long().sum().item() * 3,
    "of 16 bits": lambda x: x.bfloat16() * x.norm().item(),
    "may be too large": lambda x: x * (x.max().item() * 1e30),
    "may be too large, from doubles": lambda x: x.add(x, alpha=x.double().max().item()),
    "of ints": lambda x: x.long() * x.max().item(),
    "a root": lambda x: math.sqrt(abs(x.sum().item())),
    "divides a tensor": lambda x: x / x.max().item(),
    "one of Python's": lambda x: x + int(x.max().item() * 2),
}


@pytest.mark.parametrize("values", [*VALUES, "zero"])
@pytest.mark.parametrize("name", LEFT)
def test_left_to_python(name, values):
    f, x = LEFT[name], VALUES.get(values, torch.zeros(2, 2))
    compiled = jit(f)
    for _ in range(2):
        same(_outcome(compiled, x.clone()), _outcome(f, x.clone()), 1e-5, 1e-6, name)


def test_a_rate_beyond_one_is_left_to_python():
    def f(x, rate):
        return x.add(x, alpha=x.norm().item() * rate)

    frameloom.reset()
    compiled, x = jit(f), torch.linspace(-1, 1, 6)
    for rate in (0.1, 0.2, 0.3, -0.5, 20.0, 1e30, 0.7):
        same(compiled(x, rate), f(x, rate), 1e-5, 1e-6, str(rate))


@pytest.mark.parametrize("convert", [int, float])
def test_complex_numbers_that_are_converted(convert):
    def program(x):
        x += 1.5
        return x, convert(x)

    f = jit(program)
    for number in (2 + 0j, 1j, -3.5 + 0j):
        x = torch.tensor(number)
        assert_same_call(observe(f, (x,)), observe(program, (x,)), f"{convert} {number}")
