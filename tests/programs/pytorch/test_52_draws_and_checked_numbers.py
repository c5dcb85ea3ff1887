"""Random numbers drawn in Python, and `tensor.item()` that is only checked.

PYTEST_DONT_REWRITE
"""

import random
from random import uniform

import numpy as np
import torch

import frameloom
from tests.programs.changing import SAME, changes
from tests.programs.program import X, program


def seed():
    random.seed(3)
    np.random.seed(3)


def streams():
    return random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2:]


@program(before=seed, state=streams)
def drawn_and_unused(x):
    for training in (False, False):
        p = random.uniform(0, 1)
        q = np.random.uniform(0, 1)
        skip = training and (p < 0.5 or q < 0.5)
        if not skip:
            x = x + 1
    return x


@program(before=seed, state=streams)
def drawn_and_returned_in_another_order(x):
    a, b, c = random.random(), uniform(0, 10), random.randint(1, 1000)
    d, e, f = np.random.rand(), np.random.normal(0, 2), np.random.randint(100)
    return x + 1, f, e, d, c, b, a, [a, a]


@program(before=seed, state=streams, graphs=2, breaks="unknown_call")
def drawn_and_compared(x):
    y = x + 1
    if random.random() < 0.5:
        return y * 2
    return y - 2


@program(before=seed, state=streams, graphs=1)
def drawn_and_compared_with_what_is_out_of_range(x):
    p = random.uniform(0, 1)
    if p < 0.0 or np.random.rand() > 1 or not 2 > np.random.uniform(0, 1.5):
        return x - 2
    return x * 2 if random.random() >= 0 else x


@program(before=seed, state=streams, graphs=2, breaks="unknown_call")
def drawn_and_compared_with_an_end_of_its_range(x):
    y = x + 1
    return y * 2 if random.random() <= 0 else y - 2


@program(before=seed, state=streams, graphs=2, breaks="graph_break")
def drawn_on_both_sides_of_a_break(x):
    a = random.gauss(0, 1)
    y = x + 1
    b = random.random()
    frameloom.graph_break()
    c = random.random()
    return y * 2, c, b, a, isinstance(a, float)


@program(before=seed, state=streams, graphs=1, breaks="unknown_call")
def drawing_fails(x):
    y = x + 1
    try:
        random.randint(5, 1)
    except ValueError:
        return y
    return x


@changes
def what_draws():
    def program(x):
        return x + 1, random.uniform(0, 0)

    before = random.uniform
    yield program
    random.uniform = lambda a, b: 7.0
    yield
    random.uniform = before
    yield SAME


LENGTHS = torch.tensor([2, 4, 3])


@program(args=(X, LENGTHS))
def number_that_is_checked(x, lengths):
    assert lengths.max().item() <= x.shape[1]
    assert x.max().item() < 100.5 and lengths.min().item() != 0
    if lengths.sum().item() < 0:
        raise ValueError(f"bad {lengths}")
    return x + lengths.sum()


@program(args=(X, LENGTHS + 10), graphs=1)
def number_that_fails_its_check(x, lengths):
    y = x + 1
    assert lengths.max().item() <= x.shape[1], "too long"
    return y


@program(calls=[(X, True), (X, False), (X, True)], graphs=2, breaks="exception")
def flag_that_is_checked(x, fine):
    flag = torch.full((1,), fine)
    if not flag.item():
        raise ValueError("not fine")
    return x + 1


@program(args=(X, LENGTHS))
def number_that_is_checked_and_used(x, lengths):
    n = lengths.max().item()
    assert n <= 4
    return x * n


@program(args=(X, LENGTHS))
def number_that_is_checked_and_returned(x, lengths):
    n = lengths.max().item()
    assert n <= 4
    return x + 1, n


@program(args=(X, LENGTHS), graphs=2, breaks="item")
def number_that_decides(x, lengths):
    return x + 1 if lengths[0].item() < 3 else x - 1


@program(args=(X, LENGTHS))
def number_of_a_tensor_that_is_written_later(x, lengths):
    lengths = lengths.clone()
    n = lengths[0].item()
    lengths.zero_()
    assert n == 2
    return x + lengths.sum()


@program(args=(X, torch.tensor(0.1)), graphs=1)
def number_that_is_no_float32(x, p):
    y = x + 1
    assert p.item() == 0.1
    return y
