"""Python around models: signatures bound, types subscripted, modules set again to what they are.

PYTEST_DONT_REWRITE
"""

import inspect
from typing import Optional

import torch
from torch import nn

from tests.programs.program import X, program


def layer(x, scale=2.0, *rest, bias=1.0, **options):
    return x * scale + bias


SIGNATURE = inspect.signature(layer)


@program()
def signature_bind(x):
    bound = SIGNATURE.bind(x, 3.0, "more", other=5)
    before = list(bound.arguments)
    bound.apply_defaults()
    return layer(*bound.args[:2]), before, list(bound.arguments), bound.arguments["bias"]


@program()
def signature_bind_refuses(x):
    try:
        SIGNATURE.bind()
    except TypeError as error:
        return x + 1, str(error)
    return x


@program()
def types_are_subscripted(x):
    wanted = Optional[int]
    y = torch.jit.annotate(list[torch.Tensor], [x, x + 1])
    return y[1], wanted is Optional[int], int | None


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(4, 2)

    def forward(self, x):
        self.classifier = self.classifier.to(x.dtype)
        return self.classifier(x)


@program(args=lambda: (Router().eval(), X))
def submodule_set_to_itself(module, x):
    return module(x)
