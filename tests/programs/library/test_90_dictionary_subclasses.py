"""Subclasses of dictionaries: which of their methods CPython's own functions ask, and which they pass by."""

import collections

import pytest
import torch

from frameloom import jit, reset

METHODS = {
    "__getitem__": lambda self, key: ("item", key),
    "__iter__": lambda self: iter(["a"]),
    "keys": lambda self: ["a"],
    "__missing__": lambda self, key: ("missing", key),
    "items": lambda self: [("z", 1)],
    "get": lambda self, key, default=None: "got",
    "copy": lambda self: "copy",
}
SETTERS = {
    base: lambda self, key, value, base=base: base.__setitem__(self, key, ("set", value))
    for base in (dict, collections.OrderedDict, collections.defaultdict)
}
OVERRIDDEN = [
    (), *((name,) for name in METHODS), ("__setitem__",), ("__iter__", "__getitem__"), ("keys", "__getitem__"),
]  # fmt: skip


def merged(d):
    made = {"x": 0}
    made |= d
    return made


def updated(d):
    d.update(q=1)
    return d.setdefault("z", 5)


def ordered(d):
    return collections.OrderedDict(d)


def absent(d):
    return d["absent"]


def new_factory(d):
    d.default_factory = list
    return d["absent"]


USES = [
    lambda d: {**d}, lambda d: dict(d), lambda d: d | {}, lambda d: {} | d, lambda d: d.copy(), dict.copy, lambda d: d["a"],
    lambda d: type(d)(d) if not isinstance(d, collections.defaultdict) else type(d)(int, d),
    merged, updated, ordered, absent, new_factory,
]  # fmt: skip


def shown(value):
    return type(value), dict.__repr__(value) if isinstance(value, dict) else repr(value)


@pytest.mark.parametrize("base", list(SETTERS), ids=lambda base: base.__name__)
@pytest.mark.parametrize("names", OVERRIDDEN, ids=" ".join)
def test_methods_of_subclasses_are_asked_as_by_cpython(base, names):
    methods = {name: METHODS.get(name, SETTERS[base]) for name in names}
    cls = type("Own", (base,), methods)
    for use in USES:

        def run(x, d, use=use):
            return use(d), x + 1

        found = []
        for fn in (run, jit(run, backend="eager")):
            given = cls(int) if base is collections.defaultdict else cls()
            base.update(given, {"a": 1, "b": 2})
            try:
                answer = shown(fn(torch.ones(1), given)[0])
            except (KeyError, AttributeError) as error:
                answer = repr(error)
            found.append((answer, dict.__repr__(given)))
        assert found[1] == found[0], use
        reset()
