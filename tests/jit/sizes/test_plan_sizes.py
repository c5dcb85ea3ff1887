"""Sizes as a plan computes them: what the polynomial says, each part of it once."""

import random

import pytest
import torch

from frameloom.backend.plan_sizes import PlanSizes
from frameloom.ir.symbolic.expr import Size, largest, smallest
from frameloom.ir.symbolic.shape_env import ShapeEnv
from frameloom.runtime import _runtime
from frameloom.runtime.spec import BufferSpec, PlanSpec, SizeCall, SizeRef

SYMBOLS = 3


class Refused(BaseException):
    pass


@pytest.fixture
def algebra():
    """Three symbols, and what collects the sizes of a plan that is given them as ints."""
    shape_env = ShapeEnv()
    symbols = [shape_env.symbol(5 + i, i) for i in range(SYMBOLS)]
    return symbols, PlanSizes(lambda symbol: SizeCall("number", (symbol.source,)))


def plan(sizes, numbers):
    """(a, b, c) -> these numbers."""
    outputs = tuple((sizes.ref(n),) for n in numbers)
    number = BufferSpec("number", (), (), torch.int64, torch.device("cpu"))
    return _runtime.Plan(
        PlanSpec(
            SYMBOLS, (number,) * SYMBOLS, (), outputs, 0, sizes=tuple(sizes.calls), refused=Refused
        )
    )


def test_ints_stay_ints(algebra):
    (a, *_), sizes = algebra
    assert sizes.refs((3, a, a - a, a * 0 + 7)) == (3, SizeRef(0), 0, 7)
    assert sizes.calls == [SizeCall("number", (0,))]


def test_what_is_wanted_twice_is_computed_once(algebra):
    (a, b, c), sizes = algebra
    first = sizes.ref(a * b + 2 * c)
    count = len(sizes.calls)
    assert sizes.ref(2 * c + b * a) == first and len(sizes.calls) == count
    sizes.ref(a * b)  # a part of the first
    assert len(sizes.calls) == count


def test_kernels_may_want_constants(algebra):
    (a, *_), sizes = algebra
    places = [sizes.index(n) for n in (4, a, 4)]
    assert places[0] == places[2] and sizes.calls[places[0]] == SizeCall("const", (4,))


def test_plans_compute_what_the_formulas_say(algebra):
    (a, b, c), sizes = algebra
    formulas = [
        lambda a, b, c: a * b * c - 7,
        lambda a, b, c: (a + 3) // 4 * 4 - b,
        lambda a, b, c: 3 - a * a,
        lambda a, b, c: (a * b + 5) // (c + 2) + (a * b + 5) % (c + 2),
        lambda a, b, c: (b - 9 * a) // 8 - (b - 9 * a) % 8,
    ]
    p = plan(sizes, [f(a, b, c) for f in formulas] + [largest(a, b + c, 6), smallest(a * 2, b, 9)])
    rng = random.Random(0)
    for _ in range(200):
        x, y, z = (rng.randint(1, 40) for _ in range(SYMBOLS))
        expected = [f(x, y, z) for f in formulas] + [max(x, y + z, 6), min(x * 2, y, 9)]
        assert p(x, y, z) == tuple(expected)


def test_sizes_beyond_64_bits_are_refused(algebra):
    (a, b, _), sizes = algebra
    p = plan(sizes, [a * b])
    assert isinstance(a * b, Size) and p(2**31, 2**31, 1) == (2**62,)
    with pytest.raises(Refused):
        p(2**32, 2**31, 1)
