"""What a container lets go of ends when plain Python ends it, though compiled code writes containers late: objects with finalizers that only
a later call puts there.

PYTEST_DONT_REWRITE
"""

import types
import weakref
from collections import deque

import pytest
import torch

from frameloom import jit
from tests.programs.program import X

LOG = []


class Plain:
    pass


class Ends:
    def __del__(self):
        LOG.append("end")


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def watched(value):
    weakref.finalize(value, LOG.append, "end")
    return value


def suspended():
    def generate():
        try:
            yield 1
        finally:
            LOG.append("end")

    made = generate()
    next(made)
    return made


def clear(c):
    c.clear()


def pop(c):
    c.pop()


def set_item(c):
    c[0] = None


def set_slice(c):
    c[:] = [1, 2]


def delete_item(c):
    del c[0]


def move_item(c):
    del c[0]
    c[0] = 1


def set_attribute(c):
    c.value = None


def delete_attribute(c):
    del c.value


SEQUENCES = [lambda v: [v], lambda v: deque([v])]
INSTANCES = [lambda v: types.SimpleNamespace(value=v), Slotted]
CASES = [
    *((change, make) for change in (clear, pop, set_item, delete_item) for make in SEQUENCES),
    (set_slice, lambda v: [v]),
    (pop, lambda v: [1, 2, v]),
    *((change, lambda v: {0: v}) for change in (clear, set_item, delete_item, move_item)),
    (clear, lambda v: {v: 1} if isinstance(v, Ends) else {0: 1}),
    (clear, lambda v: {v} if isinstance(v, Ends) else {1}),
    *((change, make) for change in (set_attribute, delete_attribute) for make in INSTANCES),
]
KINDS = [
    (lambda: 1, Ends),
    (Plain, lambda: watched(Plain())),
    (lambda: X + 1, lambda: watched(X + 1)),
    (lambda: [1], lambda: [Ends()]),
    (Plain, suspended),
]


def order(run, container):
    LOG.clear()
    run(X, container)
    return LOG.copy()


@pytest.mark.parametrize(("harmless", "ends"), KINDS)
@pytest.mark.parametrize(("change", "make"), CASES)
def test_it_ends_in_time(change, make, harmless, ends):
    def program(x, c):
        LOG.append("before")
        change(c)
        LOG.append("after")
        return x + 1

    compiled = jit(program)
    for kind in (harmless, harmless, ends, ends, harmless):
        assert order(compiled, make(kind())) == order(program, make(kind()))


def test_an_object_that_others_hold_does_not_end():
    def program(x, c):
        c.value = x
        return x + 1

    LOG.clear()
    compiled, kept = jit(program), Ends()
    compiled(X, types.SimpleNamespace(value=1))
    compiled(X, types.SimpleNamespace(value=kept))
    assert not LOG
    del kept
    assert LOG == ["end"]


def test_members_of_sets_and_keys_are_not_kept():
    LOG.clear()
    compiled = jit(lambda x, s, d: (x + len(s), len(d)))
    compiled(torch.ones(2), {Ends()}, {Ends(): 1})
    assert LOG == ["end", "end"]
