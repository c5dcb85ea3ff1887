"""Checks of data: captured on the side that does not raise; calls for which it raises, or is handled, run plainly.

PYTEST_DONT_REWRITE
"""

import torch
from torch import nn

from tests.programs.program import X, program

HIGH = X * 100
TABLE = torch.arange(12.0).reshape(4, 3)
NEAR, FAR = torch.tensor([1, 3]), torch.tensor([1, 9])


@program(calls=[(X,), (HIGH,), (X,)])
def raise_if_any(x):
    y = x * 2
    if (x > 100).any():
        raise ValueError(f"too large: {x.max()}")
    return y


@program(calls=[(X,), (HIGH,)])
def raise_unless_all(x):
    if not (x < 100).all():
        raise ValueError("too large")
    return x * 2


@program(calls=[(X,), (HIGH,)])
def assert_of_a_tensor(x):
    assert (x < 100).all(), "too large"
    return x + 1


@program(calls=[(X,), (HIGH,)])
def check_tensor_all(x):
    torch._check_tensor_all_with(ValueError, x < 100, lambda: "too large")
    return x + 1


@program(calls=[(X,), (HIGH,)])
def check_after_an_input_changed(x):
    x.add_(1)
    if (x > 100).any():
        raise ValueError("too large")
    return x * 2


@program(calls=[(X,), (HIGH,), (X,)])
def check_after_random_numbers(x):
    y = x + torch.rand(4)
    if (x > 100).any():
        raise ValueError("too large")
    return y


@program(calls=[(NEAR,), (FAR,), (NEAR,)])
def index_error_handled(i):
    try:
        y = nn.functional.embedding(i, TABLE) * 2
    except IndexError:
        y = torch.zeros(3)
    return y + 1


@program(calls=[(NEAR,), (FAR,)])
def index_error_renamed(i):
    try:
        return nn.functional.embedding(i, TABLE)
    except IndexError as error:
        raise KeyError("no such word") from error


def checked(x, limit):
    if x.max() > limit:
        raise ValueError(limit)
    return x - limit


@program(calls=[(X,), (HIGH,)])
def check_in_a_callee_handled_outside(x):
    try:
        return checked(x, 50) * 2
    except ValueError as error:
        return x * error.args[0]


@program()
def message_that_is_not_needed(x):
    message = f"sum {x.sum():.2f} of {x}"
    return x + 1, len([message])


@program(graphs=1, breaks="unknown_call")
def message_that_is_returned(x):
    y = x + 1
    return y, f"{x}"
