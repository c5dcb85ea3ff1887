"""Operators of a tensor and an object of the program, which may say what PyTorch's functions make of it.

PYTEST_DONT_REWRITE
"""

from tests.programs.program import X, program


class Overriding:
    @classmethod
    def __torch_function__(cls, fn, types, args=(), kwargs=None):
        return fn.__name__

    def __radd__(self, other):
        return "radd"


@program(args=(X, Overriding()), breaks="opaque_object opaque_object opaque_object")
def operators_of_an_object_with_torch_function(x, other):
    y = x * 2
    return y + other, y != other, other == y
