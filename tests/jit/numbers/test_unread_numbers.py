"""Expressions of numbers that vary whose value nobody reads, and for which Python raises at some of them: it raises there in every call."""

import itertools

import pytest
import torch

import frameloom

EXPRESSIONS = [
    "1 // k", "1 % k", "1 / k", "1.5 // k", "n // k", "n % k", "n / k", "divmod(1, k)", "pow(2, 3, k)", "0 ** k", "2 ** k", "1 << k", "[1, 2, 3][k]",
    "range(0, 3, k)", "chr(k)", "bytes(k)", "math.sqrt(k)", "math.log(k)", "math.factorial(k)", "torch.zeros(k)", "torch.arange(0, 3, k)", "y[k]",
    "y.sum(k)", "y.narrow(0, 0, k)", "y.view(k, -1)", "y.split(k)", "y.unfold(0, k, 1)", "y.repeat(k)",
]  # fmt: skip
DIFFERENCES = ["4 - n", "n - 4", "next(ticks) - n"]
BEHIND = ["return x + 1", "x.resize_(y.shape)", "x.add_(1)", "frameloom.graph_break()"]
SIZES = (3, 3, 2, 4, 5, 7, 7, 8, 4, 4)


def outcomes(expression, difference, behind, options):
    text = f"def fn(x, y):\n n = y.shape[0]\n k = {difference}\n {expression}\n {behind}\n"
    space = {"torch": torch, "frameloom": frameloom, "math": __import__("math")}
    space["ticks"] = itertools.count(1)
    exec(text, space)
    fn = space["fn"] if options is None else frameloom.jit(space["fn"], **options)
    found = []
    for size in SIZES:
        try:
            result = fn(torch.ones(size), torch.ones(size))
            found.append(None if result is None else result.tolist())
        except Exception as error:
            found.append(type(error))
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_that_raises_for_some_numbers(expression):
    for number, (difference, behind) in enumerate(itertools.product(DIFFERENCES, BEHIND)):
        plain = outcomes(expression, difference, behind, None)
        options = {"dynamic": True} if number % 3 else {}
        assert outcomes(expression, difference, behind, options) == plain, (difference, behind)
