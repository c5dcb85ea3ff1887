"""`getattr` and `hasattr` of what is no user object: modules, None, tensors, types with arguments, partials; and frozensets that hold their holder.

PYTEST_DONT_REWRITE
"""

import functools
import math

from tests.programs.program import X, program

KIND = list[int]
METHODS = []
PART = functools.partial(max, 1, key=None)


@program()
def dictionary_and_class_of_a_module(x):
    """They are not in the module's dictionary, and yet there."""
    table = getattr(math, "__dict__", {})
    return x + 1, table["pi"], hasattr(math, "__class__"), math.__class__, table is math.__dict__


@program(breaks="attribute")
def method_of_a_module(x):
    y = x + 1
    return y, hasattr(math, "__dir__")


@program()
def methods_of_none(x):
    return x + 1, None.__eq__(None), hasattr(None, "__bool__")


@program(state=lambda: METHODS.pop()(None))
def method_of_none_is_bound(x):
    METHODS.append(None.__eq__)
    return x + 1


@program()
def what_a_tensor_lacks_its_class_may_have(x):
    return x + 1, hasattr(x, "mro"), hasattr(x, "__call__"), hasattr(x, "__subclasses__")


@program(breaks="tensor_attribute")
def text_about_a_tensor(x):
    y = x + 1
    return y, x.__doc__ is None


@program()
def type_with_arguments_passes_questions_on(x):
    return x + 1, hasattr(KIND, "mro"), KIND.__hash__, KIND.__origin__


@program()
def arguments_of_a_partial(x):
    return x + 1, PART.args is PART.args, PART.keywords is PART.keywords


class Inside:
    pass


def circle():
    inside = Inside()
    inside.value = frozenset([inside])
    return inside.value


CIRCLE = circle()


@program(args=lambda: (X, circle()), graphs=2)  # its member is known by identity
def frozenset_that_holds_its_holder(x, given):
    (inside,) = given
    return x + 1, inside.value is given


@program(state=lambda: KEPT[-1] is CIRCLE)
def frozenset_from_a_global_is_that_one(x):
    (inside,) = CIRCLE
    KEPT.append(inside.value)
    return x + 1, inside.value is CIRCLE


KEPT = []


class Guarded:
    def __init__(self):
        self.k = 2.0

    def __getattribute__(self, name):
        if name == "__dict__":
            print("asked for its dictionary")
        return object.__getattribute__(self, name)


@program(graphs=2, breaks="print", args=lambda: (Guarded(), X))
def dictionary_past_the_class_over_a_break(obj, x):
    table = object.__getattribute__(obj, "__dict__")
    y = x + 1
    print("break")
    return y * table["k"]


@program(breaks="unknown_call")
def too_many_arguments_for_a_view(x):
    y = x + 1
    try:
        return {}.keys(0)
    except TypeError as error:
        return y, str(error)
