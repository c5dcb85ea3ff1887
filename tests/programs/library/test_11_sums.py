"""The builtin `sum`: since CPython 3.12 it makes up for what the addition of floats rounds away.

PYTEST_DONT_REWRITE
"""

import enum
import sys

import torch

from tests.programs.program import X, program


class Level(enum.IntEnum):
    LOW = 1


class Count(int):
    pass


class Weight(float):
    pass


@program(args=(X, [1e16, 1.0, -1e16]))
def given_floats(x, items):
    return x + sum(items), sum(items, 0.5), sum(items, 1e16)


@program(
    args=(
        X,
        [
            [0.1] * 10,
            [1, 2.5, True, 1e16, 3, -1e16, 0.25],
            [1e16, Level.LOW, 1.0, -1e16],
            [1e16, Count(3), 1.0, -1e16],
            [Count(3), 1e16, 1.0, -1e16],
            [1 << 70, 1e16, 1.0, -1e16],
            [(1 << 63) - 1, 1, 1e16, 1.0, -1e16],
            [1e16, 1.0, 1 << 70, 1.0, -1e16],
            [1e16, 1.0, 1j, -1e16, 1.0],
            [1e16, 1.0, Weight(2.0), -1e16, 1.0],
            [1e308, 1e308, -1e308],
            [1.0, float("inf"), 2.0],
            [1e16, 1.0, float("nan")],
            [-0.0, -0.0],
            [],
        ],
    )
)
def kinds_of_numbers(x, rows):
    return x + 1, [
        sum(row, start) for row in rows for start in (0, -0.0, True, Weight(0.0)) if row or start
    ]


@program(
    calls=[
        (X, 0.1, 0.2),
        (X, 1e16, 0.7),
        (X, 1e15, 0.3),
        (X, 1e16, 1.5),
        (X, 0.5, 0.25),
        (X, 1e308, 1e308),
    ],
    graphs=4 if sys.version_info >= (3, 12) else 2,  # one for each way to be exact
)
def changing_floats(x, a, b):
    return x * sum([a, b, -a]), sum([1.0, a, 3, b])


@program(args=(X, torch.tensor([1e16, 1.0, -1e16], dtype=torch.float64)), graphs=1, breaks="item")
def items_of_tensor(x, t):
    return x + sum(t.tolist())


@program(args=(X, [1e16, 1.0]))
def floats_then_tensor(x, items):
    return sum([*items, x, *items])
