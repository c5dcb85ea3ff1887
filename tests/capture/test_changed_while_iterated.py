"""Containers that change while they are iterated over.

Drawn programs: `python -m tests.sweeps iterated`.
"""

import pytest
import torch

import frameloom
from tests.sweeps.iterated import sweep_iterated


def values(x, d):
    return [(v, d.__setitem__("b", 9))[0] for v in d.values()], x + 1


def items(x, d):
    seen = []
    for pair in d.items():
        seen.append(pair)
        d["b"] = 9
    return seen, x + 1


def items_of_a_copy(x, d):
    d, seen = dict(d), []
    for key, value in d.items():
        d["c"] = d["c"] + value
        seen.append((key, value))
    return seen, x + 1


def backwards(x, d):
    seen = []
    for value in reversed(d.values()):
        seen.append(value)
        d["a"] = 9
    return seen, x + 1


def mapped_and_zipped(x, d):
    seen = []
    for value, pair in zip(map(lambda v: v * 2, d.values()), d.items(), strict=True):
        seen.append((value, pair))
        d["c"] = 9
    return seen, x + 1


def advanced_outside(x, d):
    rest = iter(d.values())
    first = next(rest)
    d["b"] = 9
    return [first, rest], x + 1


def other_keys(x, d):
    rest = iter(d.values())
    del d["c"]
    d["z"] = 8
    return list(rest), x + 1


def more_keys(x, d):
    for key in d:
        d[key * 2] = 1
    return x + 1


def other_items_of_a_set(x, d):
    numbers, seen = {1, 2, 3}, []
    for number in numbers:
        seen.append(number)
        if number == 1:
            numbers.discard(1)
            numbers.add(9)
    return seen, x + 1


def a_list_that_gets_shorter(x, d):
    some = [1, 2, 3]
    pairs = zip(some, "abc", strict=False)
    next(pairs), next(pairs)
    some.clear()
    return some, pairs, x + 1


class Object:
    def __init__(self):
        self.a, self.b = 1, 2


def attributes(x, d):
    own, seen = Object(), []
    for pair in vars(own).items():
        own.b = 9
        seen.append(pair)
    return seen, x + 1


def more_attributes(x, d):
    own = Object()
    names = vars(own).keys()
    own.c = 3
    return [*names], x + 1


def attributes_while_they_grow(x, d):
    own = Object()
    for _ in vars(own):
        own.c = 3
    return x + 1


@pytest.mark.parametrize(
    "fn",
    [
        attributes,
        more_attributes,
        attributes_while_they_grow,
        values,
        items,
        items_of_a_copy,
        backwards,
        mapped_and_zipped,
        advanced_outside,
        other_keys,
        more_keys,
        other_items_of_a_set,
        a_list_that_gets_shorter,
    ],
)
def test_what_is_seen_is_what_is_there_by_then(fn):
    jitted = frameloom.jit(fn)
    assert seen(jitted) == seen(jitted) == seen(fn)


def seen(fn):
    table = {"a": 1, "b": 2, "c": 3}
    try:
        found, *rest = fn(torch.ones(1), table)
    except RuntimeError as error:
        return str(error), table
    if fn.__name__ == "a_list_that_gets_shorter":
        found += [4]  # behind the end, where the iterator stands
        return list(rest[0]), table
    return [list(v) if hasattr(v, "__next__") else v for v in found], table


def test_drawn_programs():
    assert not [*sweep_iterated(count=60)]
