"""Parameters and other instances of subclasses of torch.Tensor that are made from tensors.

PYTEST_DONT_REWRITE
"""

import torch
from torch import nn

from tests.programs.program import X, program


class Plain(torch.Tensor):
    pass


class WithNote(torch.Tensor):
    def __init__(self, data):
        self.note = "n"


class Holder:
    pass


@program()
def a_parameter(x):
    p = nn.Parameter(x * 2)
    return p, p.requires_grad, p.is_leaf, p.grad, p.grad_fn, type(p), isinstance(p, nn.Parameter)


@program()
def used_without_gradients(x):
    p = nn.Parameter(x * 2)
    return p * 3, p, type(p * 3)


@program()
def that_requires_no_gradients(x):
    p = nn.Parameter(x * 2, requires_grad=False)
    return p + 1, p


@program()
def of_an_input(x):
    p = nn.Parameter(x, False)
    p.add_(1)
    return p, x


@program(grad=True)
def made_with_gradients_on(x):
    return nn.Parameter(x * 2), x + 1


@program(args=lambda: (X, Holder()))
def kept_in_an_object(x, holder):
    holder.p = nn.Parameter(x + 1)
    return x * 2


@program(args=lambda: (X, nn.Linear(4, 2)))
def set_in_a_module(x, m):
    m.weight = nn.Parameter(m.weight * 2)
    return m(x)


@program()
def a_module_is_made(x):
    m = nn.Linear(4, 2)
    return m(x)


@program()
def by_make_subclass(x):
    y = torch.Tensor._make_subclass(Plain, x * 2)
    return y + 1, y, type(y)


@program()
def by_the_class(x):
    y = Plain(x * 2)
    return y + 1, y, type(y)


@program()
def by_a_class_with_init(x):
    y = WithNote(x)
    y.add_(1)
    return y, y.note, x


@program(graphs=2, breaks="print")
def break_between(x):
    p = nn.Parameter(x * 2)
    print("here")
    return p * 2, p


@program(breaks="exception")
def an_exception_behind_it(x):
    p = nn.Parameter(x * 2)
    raise ValueError(type(p))
