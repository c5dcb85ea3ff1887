"""`@changes` makes a generator function of a test_NN_subject.py file a test of what happens when the world changes between calls.

    @changes
    def attribute_of_a_class():
        class A:
            k = 2.0

        a = A()
        yield lambda x: x * a.k        # the program, called with X; or (program, *arguments)
        A.k = 3.0                      # a change
        yield                          # it is called plainly and jitted, and both must do the same
        A.other = 1
        yield SAME                     # also: nothing is compiled for this call

Before the first change the program is called twice.  A change that must be undone for other tests is undone behind the last yield.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from frameloom.capture import _capture
from tests.capture.capturing import GraphRunner
from tests.observe import assert_same_call, observe

X = torch.arange(12.0).reshape(3, 4) - 5
SAME = object()


def changes(make: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
    """See above."""

    def run() -> None:
        world = make()
        given = next(world)
        program, *args = given if isinstance(given, tuple) else (given,)
        seen = GraphRunner()
        target = _capture.JitFunction(program, seen)
        compare = Comparison(program, target, args or [X])
        compare("before any change")
        compare("before any change, again", SAME)
        assert not seen.plain, seen.plain
        for number, demand in enumerate(world, 1):
            compare(f"after change {number}", demand)

    make.__program__ = run  # type: ignore[attr-defined]
    return make


class Comparison:
    def __init__(self, program: Any, target: Any, args: Any) -> None:
        self.sides = program, target
        self.args = args
        self.entries = 0

    def __call__(self, where: str, demand: Any = None) -> None:
        want, got = (observe(side, lambda: self.args, grad=False) for side in self.sides)
        assert_same_call(got, want, where)
        entries = len(self.sides[1].entries)
        assert demand is not SAME or entries == self.entries, f"{where}: compiled again"
        self.entries = entries
