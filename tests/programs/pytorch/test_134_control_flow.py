"""Branches and loops on data as parts of the graph: one graph, equal to eager.

PYTEST_DONT_REWRITE
"""

import torch

from frameloom import cond
from tests.programs.program import X, program

BOTH = [(X + 20,), (X - 20,), (X + 20,)]
LAYER = torch.nn.Linear(4, 4).requires_grad_(False)


@program(calls=BOTH)
def chosen_layer(x):
    return cond(x.sum() > 0, LAYER, lambda y: y @ LAYER.weight, (x,)) + 1


@program(calls=BOTH)
def trees_of_results(x):
    made = cond(
        x.sum() > 0,
        lambda d: {"a": (d["x"] + 1, [d["y"][0] * 2])},
        lambda d: {"a": (d["x"] - 1, [d["y"][0] * 3])},
        ({"x": x, "y": [x.sin()]},),
    )
    return made["a"][0], made["a"][1]


@program(calls=[*BOTH, (X,), (-X,)])
def choice_inside_a_choice(x):
    z = x * 2

    def other(y):
        return cond(y[0, 0] > -7, lambda: y + z, lambda: y - z)

    return cond(x.sum() > 0, other, lambda y: other(y) * y, (x,))


@program(calls=BOTH)
def choices_in_a_loop(x):
    for k in range(3):
        x = cond(x.mean() > k, lambda y: y - 1, lambda y, k=k: y * k, (x,))
    return x


@program(calls=BOTH, breaks="data_dependent_branch")
def choice_that_changes_inside_a_choice(x):
    log = []

    def logs(y):
        log.append(1)
        return y + 1

    def inner(y):
        return cond(y[0, 0] > -7, logs, torch.cos, (y,))

    return cond(x.sum() > 0, inner, torch.exp, (x,)), log
