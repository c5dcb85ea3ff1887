"""Tensors that get other data by `.data = ...`.

PYTEST_DONT_REWRITE
"""

import torch

from tests.programs.program import X, program


def copies(*tensors):
    return lambda: tuple(t.clone() for t in tensors)


@program()
def of_a_result(x):
    y = x * 2
    y.data = x + 1
    return y + 1, y


@program(args=copies(X))
def of_an_input(x):
    x.data = x.data + 1
    return x * 2


@program(args=copies(X, X + 1))
def of_another_input(x, y):
    x.data = y
    x.add_(1)
    return x * 2, y * 3


@program()
def views_keep_the_former_data(x):
    y = x * 2
    view = y[0]
    y.data = x + 1
    y.mul_(2)
    return view, y, y[0]


@program()
def another_shape_and_dtype(x):
    y = x * 2
    y.data = torch.arange(5)
    return y + 1, y.shape, y.dtype, y


@program(args=copies(X))
def another_shape_of_an_input(x):
    x.data = x[:2].half()
    return x.shape, x.dtype, x + 1


@program(args=copies(X, X))
def two_tensors_swap(x, y):
    x.data, y.data = y.data + 1, x.data
    return x * 2, y


@program(args=copies(X), graphs=2, breaks="print")
def break_behind(x):
    x.data = x + 1
    print("here")
    return x * 2


@program(calls=[copies(X, X), lambda: (X.clone(),) * 2, copies(X, X)], graphs=2)
def one_tensor_by_two_names(x, y):
    x.data = x + 1
    return x * 2, y * 3


@program(args=lambda: ((lambda x: (x, x, x[0]))(X.clone()),))
def the_same_tensor_twice(xs):
    xs[0].data = xs[1] * 2
    return xs[1] + 1, xs[0] is xs[1], xs[2] * 2


@program(args=copies(X), breaks="exception")
def an_exception_behind_it(x):
    x.data = x + 1
    raise ValueError("after")


@program(args=lambda: (torch.nn.Linear(4, 2), X), graphs=2, breaks="tensor_attribute")
def of_a_parameter_that_requires_gradients(m, x):
    m.weight.data = m.weight.data * 2
    return m(x)


@program(args=lambda: (torch.nn.Linear(4, 2).requires_grad_(False), X))
def of_a_parameter(m, x):
    m.weight.data = m.weight.data * 2
    m.bias.data.zero_()
    return m(x)
