"""Some cases of every space, others of each seed; `python -m tests.exhaustive` runs them all."""

import dataclasses

import pytest

from frameloom.ir import index
from frameloom.ir.node import Node, const
from frameloom.ir.ops import Op
from frameloom.ir.rewrite import Rule, any_node, exactly, of
from tests.exhaustive import indices, rules, sizes
from tests.exhaustive.spaces import Tally


@pytest.mark.parametrize("space", [*indices.SPACES, *sizes.SPACES], ids=lambda s: s.name)
def test_some_small_cases(space):
    tally = Tally().add(space, space.some(120))
    assert not tally.wrong, tally.first
    assert tally.checked > tally.skipped / 8


def test_rules_on_special_values():
    for space in rules.SPACES[: len(rules.ALL_RULES)]:
        tally = Tally()
        for seed in range(20):
            tally.add(space, space.some(60, seed))
            if tally.checked >= 30:
                break
        assert not tally.wrong, tally.first
        assert tally.checked, space.name


@pytest.mark.parametrize(
    "rule",
    [
        Rule(of(Op.ADD, any_node("x"), exactly(0.0)), lambda x: x),  # -0.0 + 0.0 is 0.0
        Rule(of(Op.MUL, any_node("x"), exactly(0.0)), lambda x: const(0.0, x.dtype)),
        Rule(
            of(Op.NOT, of(Op.LT, any_node("x"), any_node("y"))),
            lambda x, y: Node(Op.GE, rules.DType.BOOL, (x, y)),
        ),
    ],
)
def test_a_wrong_rule_is_found(rule):
    space = rules.OfRule("wrong", rules.rewritten, ([rule],))
    assert Tally().add(space, space.some(100)).wrong


def test_wrong_algebra_is_found(monkeypatch):
    monkeypatch.setattr(indices.ix, "mod", index.floordiv)
    space = next(s for s in indices.SPACES if s.name == "division")
    assert Tally().add(space, space.some(50)).wrong
    worse = dataclasses.replace(space, check=lambda *case: "wrong")
    assert Tally().add(worse, space.some(3)).wrong == 3
