"""What guards of sizes say to users, and how they divide."""

import itertools
import operator
import struct
from types import SimpleNamespace

import pytest

from frameloom.capture.symbolic.size_guards import OPS, condition
from frameloom.ir.symbolic.shape_env import ShapeEnv
from tests.capture.guards.test_guards import Guard


def symbols(*names):
    shape_env = ShapeEnv()
    return [shape_env.symbol(8, SimpleNamespace(text=lambda n=n: n)) for n in names]


@pytest.mark.parametrize(
    ("make", "sign", "said"),
    [
        (lambda a, b: a - 9, "==", "a == 9"),
        (lambda a, b: b - a, "!=", "b != a"),
        (lambda a, b: -a + 5, ">=", "a <= 5"),
        (lambda a, b: a - 6, ">=", "a >= 6"),
        (lambda a, b: 2 * a - 3 * b + 1, ">=", "2*a + 1 >= 3*b"),
        (lambda a, b: a - 2 * b - 4, "==", "a == 2*b + 4"),
        (lambda a, b: a + 4, "!=", "a != -4"),
        (lambda a, b: a % 4, "==", "mod(a, 4) == 0"),
    ],
)
def test_conditions_are_said_as_one_would_write_them(make, sign, said):
    assert condition(make(*symbols("a", "b")), sign) == said


@pytest.mark.parametrize(
    ("name", "divide"), [("floordiv", operator.floordiv), ("mod", operator.mod)]
)
def test_divisions_round_as_those_of_python(name, divide):
    for a, b in itertools.product(range(-7, 8), (-3, -2, 2, 3)):

        def build(guards, node, a=a, b=b):
            steps = [(OPS["int"], node, 0), (OPS["const"], b, 0), (OPS[name], 0, 0)]
            steps += [(OPS["const"], -divide(a, b), 0), (OPS["add"], 0, 0), (OPS["=="], 0, 0)]
            program = struct.pack(f"{3 * len(steps)}q", *itertools.chain(*steps))
            guards.check(node, "sizes", ("a and b", program))

        assert Guard(build)(a) is None
