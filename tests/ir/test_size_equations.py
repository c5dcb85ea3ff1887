"""Of questions in any order: what was found to be 0 has the form 0 from then on, and no call that the conditions let through says otherwise."""

import itertools
import random

from frameloom.ir.symbolic.atoms import evaluated
from frameloom.ir.symbolic.expr import Size
from frameloom.ir.symbolic.shape_env import ShapeEnv

MADE = {
    "sum": lambda rng, facts, a, b: a + b,
    "difference": lambda rng, facts, a, b: a - b,
    "smaller": lambda rng, facts, a, b: facts.extreme("min", a, b),
    "larger": lambda rng, facts, a, b: facts.extreme("max", a, b),
    "quotient": lambda rng, facts, a, b: a // rng.choice((2, 3)),
    "rest": lambda rng, facts, a, b: a % rng.choice((2, 3)),
    "more": lambda rng, facts, a, b: a + rng.choice((1, 2)),
    "multiple": lambda rng, facts, a, b: a * rng.choice((2, 3)),
    "less": lambda rng, facts, a, b: a - rng.choice((1, 2)),
}


def test_equations_in_any_order():
    for seed in range(400):
        rng, facts = random.Random(seed), ShapeEnv()
        sizes = [
            facts.symbol(rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 8)), None, low=rng.choice((0, 1, 1)))
            for _ in range(rng.choice((2, 3)))
        ]
        symbols, zero, other = list(facts.symbols), [], []
        ranges = [facts.range_of(n) for n in sizes]
        for _ in range(rng.choice((4, 8, 14))):
            a, b = (rng.choice([*sizes, *sizes, *sizes, 1, 2, 3]) for _ in range(2))
            kind = rng.random()
            if kind < 0.5:
                made = MADE[rng.choice([*MADE])](rng, facts, a, b)
                sizes += [made] if isinstance(made, Size) else []
            elif kind < 0.85:
                (zero if facts.is_zero(a - b) else other).append(a - b)
            else:
                zero.append(a - facts.settle(a))
        assert facts.hold(lambda symbol: symbol.hint)
        for n in zero:
            known = facts.resolved(n)
            assert not isinstance(known, Size) and known == 0, (seed, n, known)
        for values in itertools.product(range(7), repeat=len(symbols)):
            at = dict(zip(symbols, values, strict=True)).__getitem__
            likely = all(low <= v <= high for v, (low, high) in zip(values, ranges, strict=True))
            if likely and facts.hold(at):
                assert all(evaluated(n, at) == 0 for n in zero), seed
                assert all(evaluated(n, at) != 0 for n in other), seed
                assert all(evaluated(n, at) == evaluated(facts.resolved(n), at) for n in sizes), seed  # fmt: skip


def test_a_multiple_that_is_a_number_tells_of_what():
    facts = ShapeEnv()
    a, b = (facts.symbol(3, None) for _ in range(2))
    assert facts.settle(3 * a) == 9
    assert facts.resolved(a * b) is 3 * b
    assert facts.settle(2 * a * b) == 18
    assert facts.resolved(b) == 3
