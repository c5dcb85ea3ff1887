"""Python around models: signatures bound, types subscripted, modules set again to what they are.

PYTEST_DONT_REWRITE
"""

import inspect
import threading
from collections.abc import Sequence
from typing import Optional

import numpy
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


LOCK = threading.Lock()


# Under the lock in the very call, since other threads may change what the block reads.
@program(graphs=2, breaks="context_manager unknown_call")
def lock_that_is_free(x):
    with LOCK:
        y = x + 1
    return y * 2


@program(graphs=2, breaks="context_manager print unknown_call")
def print_under_a_lock(x):
    y = x + 1
    with LOCK:
        print("held")
    return y * 2


@program()
def numpy_scalar(x):
    return x / numpy.sqrt(x.shape[1]), numpy.ceil(2.5) + 1


class Recording(nn.Module):
    """Registers a hook on its layer in the first call."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.ready = False

    def forward(self, x):
        seen = []
        if not self.ready:
            with LOCK:
                self.layer.register_forward_hook(lambda module, args, output: seen.append(output))
                self.ready = True
        return self.layer(x), len(seen), len(self.layer._forward_hooks)


@program(args=lambda: (Recording().eval(), X), graphs=2, breaks="context_manager unknown_call")
def hook_registered_in_the_call(module, x):
    return module(x), module.ready


class Numbers(Sequence):
    def __init__(self, *values):
        self.values = values

    def __getitem__(self, i):
        return self.values[i]

    def __len__(self):
        return len(self.values)


@program()
def sequence_left_early(x):
    for n in Numbers(1, 2, 3):
        if n == 2:
            break
    return x * n


def delegating(values):
    yield from values


@program()
def delegating_generator_left_early(x):
    return x * next(delegating([3, 4]))
