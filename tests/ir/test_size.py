"""Sizes known at run time: their algebra agrees with that of ints, and what it concludes holds for all values."""

import itertools
import operator
import random

import pytest
import torch

from frameloom.ir.symbolic.compare import less, same
from frameloom.ir.symbolic.expr import Apply, Size, Symbol, gcd, hint_of, largest, smallest
from frameloom.ir.symbolic.shape_env import ShapeEnv
from frameloom.ir.symbolic.symint import TruthNode


def value(n, at):
    if not isinstance(n, Size):
        return n
    total = 0
    for monomial, factor in n.terms:
        part = factor
        for atom in monomial:
            part *= at[atom.name] if isinstance(atom, Symbol) else applied(atom, at)
        total += part
    return total


def applied(atom, at):
    assert isinstance(atom, Apply)
    a, b = (value(x, at) for x in atom.args)
    return {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}[atom.op](
        a, b
    )


def test_random_formulas_agree_with_ints():
    rng = random.Random(0)
    for _ in range(300):
        shape_env = ShapeEnv()
        symbols = [shape_env.symbol(rng.randint(2, 9), None) for _ in range(3)]
        points = [{f"s{k}": rng.randint(1, 12) for k in range(3)} for _ in range(6)]
        pool = [*symbols, 1, 2, 3, 8]
        plain = [[p[f"s{k}"] for k in range(3)] + [1, 2, 3, 8] for p in points]
        for _ in range(6):
            op = rng.choice(
                [
                    operator.add,
                    operator.sub,
                    operator.mul,
                    operator.floordiv,
                    operator.mod,
                    largest,
                    smallest,
                ]
            )
            i, j = rng.randrange(len(pool)), rng.randrange(len(pool))
            if op in (operator.floordiv, operator.mod) and not all(v[j] > 0 for v in plain):
                continue
            if op in (operator.floordiv, operator.mod) and not shape_env.surely_positive(pool[j]):
                continue
            made = op(pool[i], pool[j])
            exact = {largest: max, smallest: min}.get(op, op)
            for v in plain:
                v.append(exact(v[i], v[j]))
            pool.append(made)
            assert [value(made, p) for p in points] == [v[-1] for v in plain], (
                op,
                pool[i],
                pool[j],
            )
            low, high = shape_env.range_of(made)
            assert all(low <= v[-1] <= high for v in plain)
        assert not (shape_env.zero or shape_env.not_0 or shape_env.at_least_0)


KNOWN = {
    "a product": lambda a, b, c: a * b - 24,
    "a product of three": lambda a, b, c: a * b * c - 24,
    "a product by a size": lambda a, b, c: a * b - 2 * c,
    "a sum": lambda a, b, c: a + b - 10,
    "a multiple": lambda a, b, c: a - 2 * b,
    "a square": lambda a, b, c: a * a - b * c,
    "a product with a part": lambda a, b, c: a * (b - 1) - 12,
    "a quotient": lambda a, b, c: a // b - 2,
    "the smaller one": lambda a, b, c: smallest(a, b) - b,
    "the larger one": lambda a, b, c: largest(a, b + c) - a,
}


@pytest.mark.parametrize("known", KNOWN)
def test_formulas_where_something_is_known(known):
    """What follows from an equation holds wherever that does."""
    condition = KNOWN[known]
    points = [p for p in itertools.product(range(1, 13), repeat=3) if condition(*p) == 0]
    rng = random.Random(2)
    for _ in range(150):
        shape_env = ShapeEnv()
        symbols = [shape_env.symbol(n, None) for n in rng.choice(points)]
        assert condition(*symbols) == 0
        some = rng.sample(points, min(8, len(points)))
        at = [{f"s{k}": n for k, n in enumerate(p)} for p in some]
        pool = [*symbols, 1, 2, 3, 8]
        plain = [[*p, 1, 2, 3, 8] for p in some]
        for _ in range(8):
            op = rng.choice(
                [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
            )
            i, j = rng.randrange(len(pool)), rng.randrange(len(pool))
            if op in (operator.floordiv, operator.mod) and not shape_env.surely_positive(pool[j]):
                continue
            made = op(pool[i], pool[j])
            for v in plain:
                v.append(op(v[i], v[j]))
            pool.append(made)
            wanted = [v[-1] for v in plain]
            assert [value(shape_env.resolved(made), p) for p in at] == wanted, (
                op,
                pool[i],
                pool[j],
            )
            low, high = shape_env.range_of(made)
            assert all(low <= n <= high for n in wanted)


@pytest.mark.parametrize("first", ["formula", "condition"])
@pytest.mark.parametrize("known", [*KNOWN, "how many"])
def test_multiples_are_divided_where_something_is_known(known, first):
    condition = KNOWN.get(known, lambda a, b, c: int(a * b) - 12)
    for point in itertools.product(range(1, 7), repeat=3):
        if condition(*point) != 0:
            continue
        shape_env = ShapeEnv()
        symbols = [shape_env.symbol(n, None) for n in point]
        if first == "condition":
            assert condition(*symbols) == 0
        made = [
            (a * b + k * b, b, a + k)
            for a, b in itertools.permutations(symbols, 2)
            for k in (-2, -1, 0, 1, a)
        ]
        assert condition(*symbols) == 0
        at = {f"s{k}": n for k, n in enumerate(point)}
        for multiple, b, wanted in made:
            whole, rest = divmod(multiple, b)
            assert value(shape_env.resolved(whole), at) == value(wanted, at)
            assert value(shape_env.resolved(rest), at) == 0


def test_a_sum_of_many_products_is_divided_by_what_they_share():
    shape_env, *symbols = sizes(*range(2, 15))
    shared = symbols.pop()
    total = sum(n * shared for n in symbols)
    assert same(total // shared, sum(symbols)) and same(total % shared, 0)


def test_formulas_where_divisions_leave_no_rest():
    """That s0 is divided by 4, and s1 by 6, is a condition: what follows from it holds wherever it does."""
    rng = random.Random(1)
    for _ in range(200):
        shape_env = ShapeEnv()
        symbols = [shape_env.symbol(h, None) for h in (8, 12, 5)]
        for n, k in zip(symbols, (4, 6), strict=False):
            assert n % k == 0
        points = [
            {"s0": 4 * rng.randint(1, 5), "s1": 6 * rng.randint(1, 3), "s2": rng.randint(1, 7)}
            for _ in range(6)
        ]
        made, plain = 1, [1] * len(points)
        for _ in range(6):
            op = rng.choice([operator.mul, operator.mul, operator.floordiv, operator.mod])
            by = rng.choice(
                [*symbols, 2, 3, 4, 6, 8, 12, 24] if op is not operator.mod else [2, 3, 4, 12]
            )
            made, plain = op(made, by), [op(v, value(by, p)) for v, p in zip(plain, points)]
            assert [value(shape_env.resolved(made), p) for p in points] == plain
    shape_env, a, b = sizes(8, 12)
    assert a % 4 == 0 and b % 4 == 0
    assert same((a // 4) * 4, a)
    assert same(a * b // 16 * 16, a * b) and same(a * b % 16, 0)
    assert len(shape_env.zero) == 2


def test_a_sum_of_quotients_that_has_to_be_0_tells_what_they_leave():
    shape_env, a, b = sizes(8, 12)
    assert 16 * (a // 4) * (b // 4) == a * b
    assert {repr(n) for n in shape_env.zero} == {"mod(s0, 4)", "mod(s1, 4)"}


def sizes(*hints):
    shape_env = ShapeEnv()
    return shape_env, *(shape_env.symbol(h, None) for h in hints)


def test_one_form_for_equal_sizes():
    _, a, b = sizes(5, 7)
    assert (a + 1) * b - b is a * b
    assert (a * b * 8) // (a * 8) is b
    assert a * b % b == 0 and (8 * a + 3) % 8 == 3 and (8 * a + 3) // 8 is a
    assert (a - 1) // a == 0 and (a - 1) % a is a - 1
    assert a - a == 0 and type(a - a) is int


def test_divisors_below_0():
    _, a = sizes(5)
    assert (0 - a) // -1 is a and (0 - a) % -1 == 0


def test_ranges():
    shape_env, a, b = sizes(5, 7)
    assert less(0, a * b) and less(a * b - b, a * b) and same(largest(a, 1), a)
    assert not shape_env.at_least_0


def test_an_answer_becomes_a_condition_once():
    shape_env, a, b = sizes(5, 7)
    assert a < 100 and a < 100 and a < 101
    assert [repr(n) for n in shape_env.at_least_0] == ["-s0 + 99"]
    assert a != 8 and a != 8 and len(shape_env.not_0) == 1
    assert b == 7 and shape_env.resolved(b) == 7 and shape_env.resolved(a * b) is 7 * a


def test_equal_symbols_are_one():
    shape_env, a, b = sizes(5, 5)
    assert a == b
    assert shape_env.resolved(b) is a and shape_env.resolved(a * b) is a * a


def test_what_only_form_tells_while_lowering():
    shape_env, a, b = sizes(5, 5)
    shape_env.relaxed = True
    assert a != b and a != 5 and not shape_env.not_0


def test_int_settles():
    shape_env, a = sizes(5)
    assert list(range(a)) == [0, 1, 2, 3, 4]
    assert shape_env.resolved(a * 3) == 15 and len(shape_env.zero) == 1


def test_divisors():
    _, a, b = sizes(6, 4)
    assert gcd(8 * a, 12) == 4 and gcd(4 * a * b, 6 * a) is 2 * a and gcd(12, 18) == 6
    assert hint_of(a * b) == 24


def test_is_given_to_pytorch():
    _, a = sizes(5)
    assert isinstance(a, torch.SymInt)
    with pytest.raises(TypeError):
        Size()


def test_a_quotient_among_the_factors_of_a_divisor():
    """`x.view(n // 4, 4, -1)`: the condition is that 4 divides n, whatever the other sizes are."""
    shape_env, n, m = sizes(8, 5)
    assert (n * m) % (4 * (n // 4)) == 0
    assert [repr(z) for z in shape_env.zero] == ["mod(s0, 4)"]
    assert same(n * m // (4 * (n // 4)), m)


def test_a_rest_that_is_a_quotient_says_nothing_about_its_own_rest():
    shape_env, m, q = sizes(4, 1)
    n = shape_env.symbol_within(5, None, None, 31)
    assert m % 4 == 0
    assert m == 4 * q + n // 8  # so the rest by 4 is n // 8
    assert not same(8 * (n // 8), n)


def test_what_torch_expects_of_late_sizes():
    """Each part of it is believed, and a condition for the call."""
    shape_env = ShapeEnv()
    a, b = (shape_env.unbacked_symbol(name, None) for name in "ab")
    start = 48 - a - b
    inside = TruthNode(shape_env, operator.le, (-48, start)).and_(
        TruthNode(shape_env, operator.le, (start, 48))
    )
    assert inside.expect_true("", 0)
    assert start + 48 in shape_env.unbacked_conditions()


def test_a_difference_that_is_known_to_be_0():
    shape_env, a, b = sizes(8, 5)
    left = b - smallest(a, b)
    assert left == 0
    assert shape_env.range_of(left) == (0, 0) and shape_env.range_of(-left) == (0, 0)
    assert shape_env.range_of(smallest(a, b) - a)[1] == 0
