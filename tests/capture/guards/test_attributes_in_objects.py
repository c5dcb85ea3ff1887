"""Guards see every way to change an attribute, wherever CPython keeps the values: 3.13 keeps them in the object, and writing there changes no version of
its dictionary."""

import gc
import sys
import weakref

import pytest
import torch

from tests.capture.capturing import jitted

X = torch.ones(2)


class Plain:
    def __init__(self, k):
        self.k, self.w = k, X


class Module(torch.nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k, self.w = k, X


def replace_dictionary(holder):
    holder.__dict__ = {**holder.__dict__, "k": 7}


WAYS = {
    "attribute": lambda holder: setattr(holder, "k", 3),
    "object": lambda holder: object.__setattr__(holder, "k", 4),
    "dictionary": lambda holder: holder.__dict__.__setitem__("k", 5),
    "update": lambda holder: vars(holder).update(k=6),
    "other dictionary": replace_dictionary,
    "deleted and made anew": lambda holder: (delattr(holder, "k"), setattr(holder, "k", 8)),
    "many more": lambda holder: (
        [setattr(holder, f"n{n}", n) for n in range(40)] and setattr(holder, "k", 9)
    ),
    "name that is no string": lambda holder: (
        holder.__dict__.update({1: 2}),
        setattr(holder, "k", 10),
    ),
}


def read(holder):
    return holder.w * holder.k


@pytest.mark.parametrize("make", [Plain, Module])
@pytest.mark.parametrize("touched", [False, True], ids=["untouched", "with a dictionary"])
@pytest.mark.parametrize("way", WAYS)
def test_a_change_is_seen(make, touched, way):
    holder = make(2)
    if touched:
        assert vars(holder)["k"] == 2
    target, _ = jitted(read)
    for _ in range(3):
        assert target(holder).equal(read(holder))
    WAYS[way](holder)
    for k in (holder.k, 11, 12):
        holder.k = k
        for _ in range(2):
            assert target(holder).equal(X * k), k
    del holder.k
    with pytest.raises(AttributeError):
        target(holder)


def test_another_object_and_its_dictionary_stay_apart():
    one, other = Plain(2), Plain(2)
    target, _ = jitted(read)
    for _ in range(2):
        target(one), target(other)
    table = one.__dict__
    one.k = 3
    assert table["k"] == 3 and one.__dict__ is table and other.k == 2
    assert target(one).equal(X * 3) and target(other).equal(X * 2)


def test_guards_keep_no_references():
    holder = Plain(2)
    holder.w = torch.ones(3)
    table = holder.__dict__
    before = sys.getrefcount(table), sys.getrefcount(holder.w)
    target, _ = jitted(read)
    with torch.no_grad():
        for _ in range(5):
            target(holder)
    assert (sys.getrefcount(table), sys.getrefcount(holder.w)) == before
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None and table["k"] == 2
