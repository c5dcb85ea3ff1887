"""What guards of sizes say to users."""

from types import SimpleNamespace

import pytest

from frameloom.capture.size_guards import condition
from frameloom.ir.size_facts import Facts


def symbols(*names):
    facts = Facts()
    return [facts.symbol(8, SimpleNamespace(text=lambda n=n: n)) for n in names]


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
