"""Sizes that vary: what is computed and concluded of two symbols, against ints, for all small values that the conditions allow."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

from frameloom.ir.symbolic.atoms import evaluated, substitute
from frameloom.ir.symbolic.compare import at_most, bounds, divides, less, same, surely_positive
from frameloom.ir.symbolic.conditions import Conditions
from frameloom.ir.symbolic.expr import Int, Size, gcd, largest, smallest
from frameloom.ir.symbolic.shape_env import ShapeEnv
from tests.exhaustive.spaces import SKIPPED, Space

POOL: dict[str, Callable[[Any, Any], Any]] = {
    "a": lambda a, b: a, "b": lambda a, b: b, "2a": lambda a, b: 2 * a, "a+1": lambda a, b: a + 1, "a-2": lambda a, b: a - 2,
    "ab": lambda a, b: a * b, "a-b": lambda a, b: a - b, "6b": lambda a, b: 6 * b, "1": lambda a, b: 1, "2": lambda a, b: 2,
    "3": lambda a, b: 3, "-1": lambda a, b: -1, "12": lambda a, b: 12,
}  # fmt: skip
OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+": (operator.add, operator.add), "-": (operator.sub, operator.sub), "*": (operator.mul, operator.mul),
    "//": (operator.floordiv, operator.floordiv), "%": (operator.mod, operator.mod), "max": (largest, max), "min": (smallest, min),
}  # fmt: skip
HINTS = [(5, 7), (4, 4), (6, 3), (1, 2), (8, 12)]
POINTS = [
    *itertools.product(range(1, 8), repeat=2),
    (8, 4),
    (8, 12),
    (12, 6),
    (9, 12),
    (24, 8),
    (7, 28),
]
POINTS_FROM_0 = [*POINTS, *itertools.product((0,), range(4)), *itertools.product(range(1, 4), (0,))]


class NoNumber(Exception):
    """A division by what is not positive: of such sizes nothing is said."""


def calculated(op: str, x: int, y: int) -> int:
    if op in ("//", "%") and y < 1:
        raise NoNumber
    return OPS[op][1](x, y)  # type: ignore[no-any-return]


class World:
    """Two symbols, and the values that they may have."""

    def __init__(self, hints: Any) -> None:
        self.shape_env = ShapeEnv()
        self.unbacked = hints == "late"
        self.own: tuple[Int, Int]
        if self.unbacked:
            self.own = (
                self.shape_env.unbacked_symbol(None, None),
                self.shape_env.unbacked_symbol(None, 20),
            )
        else:
            self.own = (
                self.shape_env.symbol(hints[0], None),
                self.shape_env.symbol(hints[1], None),
            )
        self.hints = hints

    def points(self) -> Iterator[tuple[tuple[int, int], Callable[[Any], int]]]:
        """Those that the conditions so far allow."""
        conditions = Conditions(
            tuple(self.shape_env.at_least_0),
            tuple(self.shape_env.zero),
            tuple(self.shape_env.not_0),
        )
        for point in POINTS_FROM_0 if self.unbacked else POINTS:
            value = dict(zip(self.shape_env.symbols, point, strict=True)).__getitem__
            if (not self.unbacked or point[1] <= 20) and conditions.hold(value):
                yield point, value

    def wrong(self, made: Int, exact: Callable[[int, int], int]) -> str | None:
        """Whether a size has other values than these, or values outside its range."""
        low, high = self.shape_env.range_of(self.shape_env.resolved(made))
        for point, value in self.points():
            try:
                want = exact(*point)
            except NoNumber:
                continue
            for form in (made, self.shape_env.resolved(made)):
                if evaluated(form, value) != want:
                    return f"{form!r} is {evaluated(form, value)} for {want} at {point}"
            if not low <= want <= high:
                return f"{made!r} is {want} at {point}, not within {low, high}"
        return None


def apply(op: str, x: Int, y: Int, shape_env: ShapeEnv) -> Int:
    if op in ("//", "%") and not shape_env.surely_positive(y):
        raise NoNumber
    return OPS[op][0](x, y)


def formula(hints: Any, x: str, one: str, y: str, other: str, z: str, turned: bool) -> Any:
    """(x one y) other z, or z other (x one y)"""
    world = World(hints)

    def exact(a: int, b: int) -> int:
        inner, last = calculated(one, POOL[x](a, b), POOL[y](a, b)), POOL[z](a, b)
        return calculated(other, last, inner) if turned else calculated(other, inner, last)

    try:
        inner = apply(one, POOL[x](*world.own), POOL[y](*world.own), world.shape_env)
        last = POOL[z](*world.own)
        made = apply(other, *((last, inner) if turned else (inner, last)), world.shape_env)
    except NoNumber:
        return SKIPPED
    found = world.wrong(made, exact)
    if found is None and isinstance(made, Size) and not world.unbacked:
        # With other symbols in their place, and with numbers.
        a, b = world.shape_env.symbols
        moved = substitute(
            world.shape_env, made, {a: world.own[0] + 1, b: world.own[0] * 2}.__getitem__
        )
        found = world.wrong(moved, lambda m, _: exact(m + 1, 2 * m))
    return found


QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    "divides": lambda x, y: x % y == 0, "surely <": less, "surely <=": at_most, "surely ==": same,
    "surely divides": lambda x, y: divides(y, x),
}  # fmt: skip
ANSWERS: dict[str, Callable[[Any, Any], bool]] = {
    "divides": lambda x, y: x % y == 0, "surely <": operator.lt, "surely <=": operator.le, "surely ==": operator.eq,
    "surely divides": lambda x, y: x % y == 0,
}  # fmt: skip


def question(hints: Any, x: str, op: str, y: str, asked: str, z: str, then: Any) -> Any:
    """`x op y asked z`: the answer is so for all values that it allows; and what is computed afterwards."""
    world = World(hints)
    try:
        made = apply(op, POOL[x](*world.own), POOL[y](*world.own), world.shape_env)
    except NoNumber:
        return SKIPPED
    last = POOL[z](*world.own)
    if "divides" in asked and not world.shape_env.surely_positive(last):
        return SKIPPED
    answer = QUESTIONS[asked](made, last)
    for point, _ in world.points():
        try:
            n = calculated(op, POOL[x](*point), POOL[y](*point))
        except NoNumber:
            continue
        holds = ANSWERS.get(asked, QUESTIONS[asked])(n, POOL[z](*point))
        if holds != answer and not (asked.startswith("surely") and not answer):
            return f"{answer}, and {holds} at {point}"
    if not asked.startswith("surely") and world.hints not in [p for p, _ in world.points()]:
        return f"the captured call is not among those of {world.shape_env.zero, world.shape_env.at_least_0}"
    p, first, q = then
    try:
        made = apply(first, POOL[p](*world.own), POOL[q](*world.own), world.shape_env)
    except NoNumber:
        return None
    return world.wrong(made, lambda a, b: calculated(first, POOL[p](a, b), POOL[q](a, b)))


def slices(hints: Any, start: Any, end: Any, n: str) -> Any:
    """Of a dimension of `n` elements."""
    world = World(hints)
    of = [POOL[t](*world.own) if isinstance(t, str) else t for t in (start, end, n)]
    if not surely_positive(of[2] + 1):
        return SKIPPED
    first, last = bounds(*of)
    for point, value in world.points():
        at = [POOL[t](*point) if isinstance(t, str) else t for t in (start, end, n)]
        low, high, _ = slice(at[0], at[1]).indices(at[2])
        got = evaluated(first, value), evaluated(last, value)
        if got != (low, max(low, high)):
            return f"{got} for {low, max(low, high)} at {point}"
    return None


def divisor(hints: Any, x: str, op: str, y: str, z: str) -> Any:
    """A common divisor of `x op y` and `z`."""
    world = World(hints)
    try:
        one = apply(op, POOL[x](*world.own), POOL[y](*world.own), world.shape_env)
    except NoNumber:
        return SKIPPED
    other = POOL[z](*world.own)
    found = gcd(one, other)
    for _, value in world.points():
        n, *both = (evaluated(k, value) for k in (found, one, other))
        if (n == 0 and any(both)) or (n and (both[0] % n or both[1] % n)):
            return f"{found!r} is {n} for {both}"
        if math.gcd(*both) % n if n else False:
            return f"{n} of {both}"
    return None


NAMES = [*POOL]
SYMBOLIC = NAMES[:8]
THEN = [
    ("a", "//", "2"), ("a", "%", "3"), ("ab", "//", "12"), ("6b", "//", "2a"), ("a-b", "max", "1"), ("ab", "%", "2a"),
    ("a", "min", "b"), ("a+1", "//", "2"),
]  # fmt: skip
ENDS = [None, 0, 1, 3, -1, -2, *SYMBOLIC]
SPACES = (
    Space("formulas", formula, ([(5, 7)], NAMES, [*OPS], NAMES, [*OPS], NAMES[::2], [False, True])),
    Space("formulas of late sizes", formula, (["late"], SYMBOLIC, [*OPS], NAMES, [*OPS], NAMES[::2], [False, True])),
    Space("questions", question, (HINTS[:4], SYMBOLIC[:6], [*OPS], NAMES[::2], [*QUESTIONS], NAMES[1::2], THEN[::2])),
    Space("slices", slices, (HINTS, ENDS, ENDS, SYMBOLIC)),
    Space("divisors", divisor, (HINTS[:3], NAMES, [*OPS], NAMES, NAMES)),
)  # fmt: skip
