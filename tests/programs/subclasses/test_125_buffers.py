"""Buffers of modules: `nn.Buffer`, and tensors that PyTorch takes for buffers or parameters by an attribute.

PYTEST_DONT_REWRITE
"""

import torch
from torch import nn

from tests.programs.program import X, program


class Inherited(torch.Tensor):
    _is_param = True


class Named(nn.Module):
    def register_buffer(self, name, value, persistent=True):
        super().register_buffer(name + "_own", value, persistent)


BUFFER_OR_NUMBER = nn.Buffer | int


def kinds(x):
    return isinstance(x, nn.Buffer), isinstance(x, nn.Parameter), isinstance(x, BUFFER_OR_NUMBER)


@program()
def a_buffer(x):
    b = nn.Buffer(x * 2)
    return b, kinds(b), type(b), b.persistent, b + 1, kinds(b + 1)


@program(args=lambda: (nn.Module(), X))
def set_in_a_module(m, x):
    m.a = nn.Buffer(x * 2)
    m.b = nn.Buffer(x, persistent=False)
    m.c = x + 1
    return m.a + m.c, list(m._buffers), m._non_persistent_buffers_set


@program(
    calls=[lambda: (nn.Module(), nn.Buffer(X)), lambda: (nn.Module(), X.clone())] * 2, graphs=2
)
def made_before(m, b):
    m.b = b
    return b + 1, list(m._buffers), list(m.__dict__), kinds(b)


@program(args=lambda: (nn.BatchNorm1d(4), X))
def in_place_of_a_buffer(m, x):
    m.running_mean = nn.Buffer(x[0] + 1, persistent=False)
    return m.running_mean * 2, m._non_persistent_buffers_set


@program(args=lambda: (nn.Linear(4, 2), X), breaks="attribute_write")
def in_place_of_a_parameter(m, x):
    y = x * 2
    try:
        m.weight = nn.Buffer(x)
    except TypeError as error:
        return y, str(error)


@program(args=lambda: (Named(), X), breaks="attribute_write")
def registered_by_the_program(m, x):
    y = x * 2
    m.b = nn.Buffer(x)
    return y, list(m._buffers)


@program()
def marked_by_the_program(x):
    a, b = x + 1, x + 2
    a._is_buffer, b._is_param = True, False
    before = kinds(a), kinds(b)
    a._is_buffer, b._is_param = False, True
    return a, b, before, kinds(a), kinds(b), kinds(x)


@program()
def a_mark_is_deleted(x):
    a = x + 1
    a._is_buffer = True
    del a._is_buffer
    return a, kinds(a)


@program(args=lambda: (nn.Buffer(X.clone()),))
def a_mark_of_an_argument_changes(b):
    b._is_buffer = False
    return b + 1, kinds(b)


@program(args=lambda: (X.clone().as_subclass(Inherited),))
def a_mark_of_the_class(x):
    y = x.clone().as_subclass(Inherited)
    return y, kinds(y), kinds(x)


@program(graphs=2, breaks="print")
def break_between(x):
    b = nn.Buffer(x * 2)
    print("here")
    return b + 1, b, kinds(b)
