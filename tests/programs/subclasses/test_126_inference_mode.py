"""Instances of subclasses of torch.Tensor that are made in inference mode, or used there.

PYTEST_DONT_REWRITE
"""

import torch

from tests.programs.program import X, program


class Sub(torch.Tensor):
    pass


def state(x):
    return type(x), x.is_inference(), x.requires_grad, x.is_leaf


def leaf():
    return (X.clone().requires_grad_(),)


@program()
def of_an_argument(x):
    with torch.inference_mode():
        y = x.as_subclass(Sub)
    return y, state(y), y + 1


@program()
def of_a_result(x):
    with torch.inference_mode():
        y = (x + 1).as_subclass(Sub)
        z = y * 2
    return y, z, state(y), state(z)


@program()
def written_inside(x):
    with torch.inference_mode():
        y = x.as_subclass(Sub)
        y.mul_(2)
        z = y[0].as_subclass(torch.Tensor)
    return x, y, z


@program(grad=True)
def used_outside_with_gradients_on(x):
    with torch.inference_mode():
        y = (x + 1).as_subclass(Sub)
    z = x.as_subclass(Sub)
    return y, y * 2, z, state(y), state(z)


@program(grad=True)
def turned_off_inside(x):
    with torch.inference_mode():
        with torch.inference_mode(False):
            y = (x + 1).as_subclass(Sub)
        z = y.as_subclass(Sub)
    return y, z, state(y), state(z)


@program(args=lambda: (X.clone().as_subclass(Sub),))
def operators_of_an_instance(x):
    with torch.inference_mode():
        y = x * 2 + 1
        y.note = "n"
    return y, state(y), y.note


@program(args=leaf, grad=True, graphs=1)
def of_a_leaf(x):
    with torch.inference_mode():
        y = x.as_subclass(Sub)
        z = (x * 2).as_subclass(Sub)
    return y, z, state(y), state(z)


@program(graphs=2, breaks="print")
def break_inside(x):
    with torch.inference_mode():
        y = (x + 1).as_subclass(Sub)
        print("here")
        z = y * 2
    return y, z, state(y), state(z)
