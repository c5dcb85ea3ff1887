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


class Slotted:
    __slots__ = ("b",)


def set_and_deleted(o):
    o.b = 1
    del o.b


def deleted_and_set(o):
    del o.b
    o.b = 5


def popped_from_its_dictionary(o):
    o.b = 1
    o.__dict__.pop("b")


def key_set_and_deleted(d):
    d["b"] = 2
    del d["b"]


def key_deleted_twice(d):
    d.pop("b", None)
    d["b"] = 2
    d.pop("b")
    d["n"] = 1


def instance(has):
    o = Holder()
    o.a = 0
    if has:
        o.b = 7
    o.c = 1
    return o


def slotted(has):
    o = Slotted()
    if has:
        o.b = 7
    return o


def dictionary(has):
    return {"a": 1, "b": 0, "z": 3} if has else {"a": 1, "z": 3}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "make, change",
    [
        *((instance, f) for f in (set_and_deleted, deleted_and_set, popped_from_its_dictionary)),
        *((slotted, f) for f in (set_and_deleted, deleted_and_set)),
        *((dictionary, f) for f in (key_set_and_deleted, key_deleted_twice)),
    ],
    ids=lambda f: f.__name__,
)
def test_what_is_set_and_deleted(make, change, first):
    """Whether it was there before, and where it stands then."""

    def called(o, x):
        change(o)
        return x + 1

    compiled = frameloom.jit(called)

    def seen(f, o):
        try:
            f(o, torch.ones(2))
        except (AttributeError, KeyError) as error:
            return type(error), str(error)
        items = o if isinstance(o, dict) else getattr(o, "__dict__", {})
        return [*items.items()], hasattr(o, "b")

    for has in (first, not first, first):
        assert seen(compiled, make(has)) == seen(called, make(has))
