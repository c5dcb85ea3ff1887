"""Results in the shape that libraries of models give them: dictionaries with attributes.

PYTEST_DONT_REWRITE
"""

from collections import OrderedDict

import torch

from tests.programs.program import X, program


class Output(OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


def output(**items):
    made = Output()
    for key, value in items.items():
        made[key] = value
    return made


@program(args=lambda: (output(hidden=torch.ones(3), extra=torch.ones(2)),))
def walked_in_its_order(o):
    return {key: value + 1 for key, value in o.items()}


@program(calls=[(X, "ab"), (X, "ba")], graphs=2)
def order_matters(x, order):
    o = output(a=x, b=x * 2)
    if order == "ba":
        o.move_to_end("a")
    return [value + i for i, value in enumerate(o.values())]
