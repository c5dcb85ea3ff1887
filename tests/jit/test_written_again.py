"""What a function writes to a place that, in the captured call, held that value already."""

import pytest
import torch

import frameloom


class Holder:
    value = None


GLOBAL = FIXED = None
SAME = Holder()
VALUES = {
    "int": [1, 2, 3, 4, 2, 5, 6],
    "float": [1.5, 2.5, 3.5, 2.5, 4.5, 5.5],
    "text": ["a", "b", "c", "b"],
    "mixed": [1, True, 1.0, None, "1", 1, 2],
    "object": [Holder(), SAME, Holder(), SAME],
    "tensor": [torch.ones(2), torch.zeros(2), torch.ones(3), torch.ones(4)],
    "tuple": [(1, 2), (2, 1), (1, 2), (3, 2)],
}


def item(x, new, holder):
    holder.value.pop()
    holder.value.insert(0, new)
    return x + 1


def items(x, new, holder):
    holder.value[0]
    holder.value[:] = [new]
    return x + 1


def key(x, new, holder):
    del holder.value["a"]
    holder.value["a"] = new
    return x + 1


def attribute(x, new, holder):
    holder.value  # noqa: B018
    holder.value = new
    return x + 1


def variable(x, new, holder):
    global GLOBAL
    GLOBAL  # noqa: B018
    GLOBAL = new
    return x + 1


PLACES = {
    item: (lambda v: [v], lambda h: h.value[0]),
    items: (lambda v: [v], lambda h: h.value[0]),
    key: (lambda v: {"a": v}, lambda h: h.value["a"]),
    attribute: (lambda v: v, lambda h: h.value),
    variable: (lambda v: v, lambda h: GLOBAL),
}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
def test_it_is_there_after_every_call(place, kind, constant):
    """Also where what was there varies, so that no guard says what it was."""
    global GLOBAL, FIXED
    FIXED = VALUES[kind][1]
    if constant:
        compiled = frameloom.jit(lambda x, new, holder: place(x, FIXED, holder))
    else:
        compiled = frameloom.jit(place)
    before, now = PLACES[place]
    for old in [*VALUES[kind], FIXED]:
        for new in (old, VALUES[kind][-1], FIXED):
            holder = Holder()
            GLOBAL = old
            holder.value = before(old)
            compiled(torch.ones(3), new, holder)
            assert now(holder) is (FIXED if constant else new)
