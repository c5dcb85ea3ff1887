"""Functions made by torch.jit.script and torch.jit.trace.

PYTEST_DONT_REWRITE
"""

import warnings

import torch

from tests.programs.program import X, program

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @torch.jit.script
    def gelu(x: torch.Tensor):
        return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))

    @torch.jit.script
    def loop(x: torch.Tensor, n: int = 2):
        if x.size(0) > 2:
            x = x.sin()
        for i in range(n):
            x = x + i
        return x, [x, x * 2], {"n": n}

    @torch.jit.script
    def writes(x: torch.Tensor):
        x.add_(1)
        return x

    @torch.jit.script
    def looks(x: torch.Tensor):
        if bool(x.sum() > 0):
            return x * 2
        return x

    @torch.jit.script
    def prints(x: torch.Tensor):
        print("from a script")
        return x * 2

    @torch.jit.script
    def fails(x: torch.Tensor):
        if x.size(0) == 3:
            raise RuntimeError("three")
        return x

    @torch.jit.script
    def draws(x: torch.Tensor):
        return torch.nn.functional.dropout(x, 0.5, True)

    traced = torch.jit.trace(lambda x: x.sin() * 2, X)
    ones = torch.ones(4)
    two = torch.tensor(2.0, dtype=torch.float64)
    with_number = torch.jit.trace(lambda x: x * two, X)
    with_constant = torch.jit.trace(lambda x: x * ones, X)


@program()
def function(x):
    return gelu(x) * 2


@program(calls=[(X, 2), (X, 3), (X[:2], 2)], graphs=3)
def branches_and_loops(x, n):
    x, rows, named = loop(x, n)
    return x + rows[1], named, loop(x, n=n)[0]


@program(args=lambda: (X.clone(),))
def write(x):
    y = writes(x)
    return y is x, y * 2


@program(graphs=1, breaks="item")
def data(x):
    return looks(x + 1)


@program(graphs=2, breaks="library_call")
def output(x):
    return prints(x + 1) + 1


@program(graphs=1, breaks="op_error")
def error(x):
    return fails(x + 1)


@program(graphs=1, breaks="op_error")
def wrong_argument(x):
    y = x + 1
    try:
        return gelu(3)
    except RuntimeError:
        return y * 2


@program()
def random_numbers(x):
    return draws(x) + torch.rand(4)


@program()
def trace(x):
    return traced(x) + 1


@program(graphs=2, breaks="library_call")
def trace_with_a_constant(x):
    return with_constant(x + 1) + 1


@program(graphs=2, breaks="library_call")
def autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return gelu(x + 1) @ x.T


@program(graphs=2, breaks="library_call")
def trace_with_a_tensor_of_one_number(x):
    return with_number(x + 1) + 1
