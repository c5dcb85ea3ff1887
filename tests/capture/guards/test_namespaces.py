"""A module's globals are one dictionary, whichever way the program reaches it."""

import sys
import types

import pytest
import torch

from tests.capture.capturing import jitted

X = torch.ones(2)
OTHER = """
step = 0
def bump(x):
    global step
    step += 1
    return x * step
def drop():
    global extra
    del extra
def read(): return step
def make():
    global made
    made = [step]
    made.append(step)
"""
READS = {
    "attribute": "other.step",
    "getattr": "getattr(other, 'step')",
    "dictionary": "other.__dict__['step']",
    "vars": "vars(other)['step']",
    "modules": "sys.modules['other_module'].step",
    "globals of a function": "other.bump.__globals__['step']",
    "by a function": "other.read()",
    "import": "__import__('other_module').step",
    "kept dictionary": "table['step']",
    "item": "held[0].step",
    "get": "table.get('step')",
    "hasattr": "hasattr(other, 'step')",
    "in": "'step' in table",
}


@pytest.fixture
def other():
    module = types.ModuleType("other_module")
    sys.modules["other_module"] = module
    exec(OTHER, module.__dict__)
    yield module
    del sys.modules["other_module"]


def compare(other, text, **names):
    names |= {"other": other, "table": other.__dict__, "held": [other], "sys": sys}
    exec(text, names)
    target, _ = jitted(names["f"])
    for _ in range(3):
        results = []
        for fn in (names["f"], target):
            other.step, other.extra = 0, 5
            other.__dict__.pop("made", None)
            try:
                y, *rest = fn(X)
                results.append((y.tolist(), rest, other.step, hasattr(other, "extra")))
            except (AttributeError, KeyError, NameError) as error:
                results.append(repr(error))
        assert results[0] == results[1]


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(
    "write",
    ["other.bump(x)", "other.step = 4", "table['step'] = 4", "table.update(step=4)", "setattr(other, 'step', 4)"],
)  # fmt: skip
def test_reads_after_writes(other, read, write):
    compare(
        other, f"def f(x):\n first = {read}\n y = other.bump(x)\n {write}\n return y, first, {read}"
    )


def test_deleted_name(other):
    compare(
        other,
        "def f(x):\n y = x + other.extra\n other.drop()\n return y, hasattr(other, 'extra'), table.get('extra')",
    )


def test_object_of_a_namespace(other):
    compare(
        other,
        "def f(x):\n other.make()\n return x + other.made[1], table['made'] is other.made, len(other.made)",
    )


def test_own_globals():
    names = {}
    exec("q = 1\ndef f(x):\n    globals()['q'] = 3\n    return x * q\n", names)
    target, _ = jitted(names["f"])
    for _ in range(2):
        names["q"] = 1
        assert target(X).tolist() == [3, 3]


def test_a_module_that_computes_what_it_lacks():
    """Its function runs at each call, and one that it gets later is noticed."""
    module = types.ModuleType("computed")

    def f(x):
        return x + getattr(module, "lacks", 1)

    target, _ = jitted(f)
    assert target(X).tolist() == [2, 2]
    asked = []
    module.__getattr__ = lambda name: asked.append(name) or len(asked)
    assert [target(X).tolist() for _ in range(3)] == [[2, 2], [3, 3], [4, 4]]
    assert asked == ["lacks"] * 3
    module.lacks = 10
    assert target(X).tolist() == [11, 11]
    del module.lacks, module.__getattr__
    assert target(X).tolist() == [2, 2]
