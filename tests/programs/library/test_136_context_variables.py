"""Context variables, and classes that a program makes by functions.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import contextvars
import dataclasses
import operator
import threading

import torch

from frameloom import jit
from tests.programs.program import X, program

SCALE = contextvars.ContextVar("SCALE", default=3)
UNSET = contextvars.ContextVar("UNSET")
TENSOR = contextvars.ContextVar("TENSOR", default=torch.ones(4))
NUMBERS = iter(range(100))


@program()
def reads_the_default(x):
    return x * SCALE.get() + SCALE.get(7)


@program()
def reads_the_default_that_it_gives(x):
    return x * UNSET.get(x + 1)


@program()
def reads_a_tensor_by_default(x):
    return x * TENSOR.get()


@program(breaks="exception")
def reads_what_is_not_set(x):
    y = x + 1
    return y * UNSET.get()


def set_next():
    SCALE.set(next(NUMBERS) // 4)  # both sides of a call see the same


@program(calls=[(X,)] * 4, before=set_next, graphs=2)
def reads_what_changes(x):
    return x * SCALE.get()


@program(graphs=3, breaks="unknown_call unknown_call attribute", before=lambda: SCALE.set(2))
def sets_and_resets(x):
    y = x * SCALE.get()
    token = SCALE.set(5)
    y = y + SCALE.get()
    SCALE.reset(token)
    return y * SCALE.get(), token.var is SCALE


@program(graphs=2, args=lambda: (X, contextvars.ContextVar("a", default=2)))
def given_as_an_argument(x, variable):
    return x * variable.get(), variable.name


def test_each_context_has_its_own_value():
    def scaled(x):
        return x * SCALE.get()

    target = jit(scaled, backend="eager", fullgraph=True)
    results = []

    def run(value):
        SCALE.set(value)
        results.append(target(X))

    for value in (4, 5, 4):
        contextvars.copy_context().run(run, value)
    thread = threading.Thread(target=lambda: results.append(target(X)))  # it has the default
    thread.start()
    thread.join()
    for result, factor in zip(results, (4, 5, 4, 3), strict=True):
        torch.testing.assert_close(result, X * factor)


@program(graphs=2, breaks="class_statement", calls=[(X,)])
def makes_a_dataclass(x):
    y = x + 1
    made = dataclasses.make_dataclass("Made", ["a"])(y)
    return made.a * 2, dataclasses.is_dataclass(made)


@program()
def operators_by_their_other_names(x):
    items = [1]
    joined = operator.iconcat(items, [2])
    return (
        x + operator.index(True), operator.inv(3), operator.inv(x.int()), operator.index(4),
        joined is items, operator.iconcat((1,), (2,)),
    )  # fmt: skip


@program(breaks="unknown_call")
def concatenates_a_set(x):
    y = x + 1
    try:
        operator.iconcat([1], {2})
    except TypeError as error:
        return y, str(error)
