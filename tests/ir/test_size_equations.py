"""Of questions in any order: what was found to be 0 has the form 0 from then on, and no call that the conditions let through says otherwise."""

import itertools
import random

from frameloom.ir.symbolic.atoms import evaluated
from frameloom.ir.symbolic.expr import Size
from frameloom.ir.symbolic.shape_env import ShapeEnv

MADE = {
    "sum": lambda rng, shape_env, a, b: a + b,
    "difference": lambda rng, shape_env, a, b: a - b,
    "smaller": lambda rng, shape_env, a, b: shape_env.extreme("min", a, b),
    "larger": lambda rng, shape_env, a, b: shape_env.extreme("max", a, b),
    "quotient": lambda rng, shape_env, a, b: a // rng.choice((2, 3)),
    "rest": lambda rng, shape_env, a, b: a % rng.choice((2, 3)),
    "more": lambda rng, shape_env, a, b: a + rng.choice((1, 2)),
    "multiple": lambda rng, shape_env, a, b: a * rng.choice((2, 3)),
    "product": lambda rng, shape_env, a, b: a * b,
    "less": lambda rng, shape_env, a, b: a - rng.choice((1, 2)),
}


def test_equations_in_any_order():
    for seed in range(400):
        rng, shape_env = random.Random(seed), ShapeEnv()
        sizes = [
            shape_env.symbol(
                rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 8)), None, low=rng.choice((0, 1, 1))
            )
            for _ in range(rng.choice((2, 3)))
        ]
        symbols, zero, other = list(shape_env.symbols), [], []
        ranges = [shape_env.range_of(n) for n in sizes]
        for _ in range(rng.choice((4, 8, 14))):
            a, b = (rng.choice([*sizes, *sizes, *sizes, 1, 2, 3]) for _ in range(2))
            kind = rng.random()
            if kind < 0.5:
                made = MADE[rng.choice([*MADE])](rng, shape_env, a, b)
                sizes += [made] if isinstance(made, Size) else []
            elif kind < 0.85:
                (zero if shape_env.is_zero(a - b) else other).append(a - b)
            else:
                zero.append(a - shape_env.specialize(a))
        assert shape_env.hold(lambda symbol: symbol.hint)
        for n in zero:
            known = shape_env.resolved(n)
            assert not isinstance(known, Size) and known == 0, (seed, n, known)
        for values in itertools.product(range(7), repeat=len(symbols)):
            at = dict(zip(symbols, values, strict=True)).__getitem__
            likely = all(low <= v <= high for v, (low, high) in zip(values, ranges, strict=True))
            if likely and shape_env.hold(at):
                assert all(evaluated(n, at) == 0 for n in zero), seed
                assert all(evaluated(n, at) != 0 for n in other), seed
                assert all(evaluated(n, at) == evaluated(shape_env.resolved(n), at) for n in sizes), seed  # fmt: skip


def test_a_factor_that_is_a_number_is_one_in_every_product():
    """An equation of a product is solved by what another one says of a factor, and not by itself."""
    shape_env = ShapeEnv()
    a, b, c, d = (shape_env.symbol(n, None) for n in (40, 40, 80, 2))
    assert shape_env.is_zero(c - b * d)
    assert shape_env.is_zero(a * b - 1600)
    assert shape_env.is_zero(a - 40)
    assert shape_env.resolved(b) == 40
    assert shape_env.resolved(c) is shape_env.resolved(40 * d)


def test_a_multiple_that_is_a_number_tells_of_what():
    shape_env = ShapeEnv()
    a, b = (shape_env.symbol(3, None) for _ in range(2))
    assert shape_env.specialize(3 * a) == 9
    assert shape_env.resolved(a * b) is 3 * b
    assert shape_env.specialize(2 * a * b) == 18
    assert shape_env.resolved(b) == 3
