"""The least and the greatest value of sizes: interval arithmetic over sums of products.

In: ranges of single symbols and of whole products.  Out: `range_of` any size.  The ranges become narrower as
questions are answered (symbolic/shape_env.py).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from frameloom.ir.symbolic.expr import Apply, Atom, Int, Monomial, Size, terms_of

Range = tuple[float, float]  # ints, or infinite
MAX_EXTREMES = 4


class Ranges(ABC):
    """The known ranges.  `at_least_0`: sizes that are at least 0 by a condition of the code; `_sure`: those
    that always are."""

    def __init__(self) -> None:
        self.at_least_0: dict[Size, Any] = {}
        self.has_unbacked = False
        self._ranges: dict[Atom, Range] = {}
        self._sure: set[Size] = set()
        self._most: dict[Monomial, float] = {}  # of products
        self._cache: dict[Any, Any] = {}  # a cache; cleared when more is assumed

    @abstractmethod
    def make(self, terms: dict[Monomial, int]) -> Int:
        """Returns the sum of products."""

    def range_of(self, n: Int) -> Range:
        """Returns the least and the greatest value."""
        if not isinstance(n, Size):
            return n, n
        interval = self._cache.get(n)
        if interval is None:
            interval = self._cache[n] = self._range_of(n)
        return interval

    def memoized(self, fn: Callable[..., Any], *sizes: Int) -> Any:
        """Returns `fn` of this environment and the sizes; recomputes it when more is assumed."""
        cached = self._cache.get((fn, sizes))
        if cached is None:
            cached = self._cache[fn, sizes] = fn(self, *sizes)
        return cached

    def _range_of(self, n: Size) -> Range:
        total: dict[Monomial, int] = {}
        for monomial, factor in terms_of(n).items():
            for product, times in self._above_least(monomial).items():
                total[product] = total.get(product, 0) + factor * times
        low = high = float(total.pop((), 0))
        for monomial, factor in total.items():
            if not factor:
                continue
            one: Range = (1, 1)
            for atom in monomial:
                least, most = self._ranges[atom]
                one = _times(one, (0, most - least) if least > -math.inf else (least, most))
            part = _times(one, (factor, factor))
            low, high = low + part[0], high + part[1]
        if n in self.at_least_0 or n in self._sure:
            low = max(low, 0)
        if self.has_unbacked and high > 0 and ((m := -n) in self.at_least_0 or m in self._sure):
            high = 0
        if low <= 0:
            low, high = self._by_extremes(n, low, high)
        if low == -math.inf or high == math.inf:
            other = self._without_quotient(n)
            low, high = max(low, other[0]), min(high, other[1])
        if self._most:
            other = self._with_products(n)
            low, high = max(low, other[0]), min(high, other[1])
        return low, high

    def _by_extremes(self, n: Size, low: float, high: float) -> Range:
        """Narrows the range by a maximum or a minimum in the sum: a maximum equals one operand and is at
        least the other; a minimum is at most the other.  A sum with many of them is skipped, because each one
        doubles the cases."""
        extremes = [(m, factor) for m, factor in n.terms if _is_extreme(m)]
        if len(extremes) > MAX_EXTREMES:
            return low, high
        for monomial, factor in extremes:
            atom: Any = monomial[0]
            rest = self._without(n, monomial)
            a, b = (self.range_of(rest + factor * arg) for arg in atom.args)
            if (factor > 0) == (atom.op == "max"):
                return max(low, a[0], b[0]), min(high, max(a[1], b[1]))
            return max(low, min(a[0], b[0])), min(high, a[1], b[1])
        return low, high

    def _without(self, n: Size, monomial: Monomial) -> Int:
        """Returns the other terms as they are written (resolved, they may have other forms)."""
        return self.make({m: factor for m, factor in n.terms if m != monomial})

    def _without_quotient(self, n: Size) -> Range:
        """Returns a range by the bounds of a quotient: `(a - k + 1) / k <= a // k <= a / k`."""
        for monomial, factor in n.terms:
            atom = monomial[0] if len(monomial) == 1 else None
            if (
                not isinstance(atom, Apply)
                or atom.op != "floordiv"
                or not isinstance(atom.args[1], int)
            ):
                continue
            a, k = atom.args
            if k < 1:
                continue
            rest = self._without(n, monomial) * k
            least, most = (a - k + 1, a) if factor > 0 else (a, a - k + 1)
            low, high = (
                self.range_of(rest + least * factor)[0],
                self.range_of(rest + most * factor)[1],
            )
            return (
                low if math.isinf(low) else -((-low) // k),
                high if math.isinf(high) else high // k,
            )
        return -math.inf, math.inf

    def _with_products(self, n: Size) -> Range:
        """Returns a range by the greatest values of whole products."""
        low = high = 0.0
        for monomial, factor in n.terms:
            one: Range = (1, 1)
            for atom in monomial:
                one = _times(one, self._ranges[atom])
            one = one[0], min(one[1], self._most.get(monomial, math.inf))
            part = _times(one, (factor, factor))
            low, high = low + part[0], high + part[1]
        return low, high

    def _above_least(self, monomial: Monomial) -> dict[Monomial, int]:
        """Rewrites the product in the differences of its factors from their least values: `s0*s1` is `1 + s0
        + s1 + s0*s1` if both are at least 1.  This shows that `s0*s1 - s1` is not negative."""
        total: dict[Monomial, int] = {(): 1}
        for atom in monomial:
            least = self._ranges[atom][0]
            grown: dict[Monomial, int] = {}
            for product, times in total.items():
                longer = (*product, atom)
                grown[longer] = grown.get(longer, 0) + times
                if least > -math.inf and least:
                    grown[product] = grown.get(product, 0) + times * int(least)
            total = grown
        return total

    def _range_applied(self, atom: Apply) -> Range:
        (a_low, a_high), (b_low, b_high) = map(self.range_of, atom.args)
        if atom.op == "max":
            return max(a_low, b_low), max(a_high, b_high)
        if atom.op == "min":
            return min(a_low, b_low), min(a_high, b_high)
        if b_low < 1:
            return -math.inf, math.inf
        if atom.op == "mod":
            return 0, b_high - 1
        corners = [_floor(x, y) for x in (a_low, a_high) for y in (b_low, b_high)]
        return min(corners), max(corners)

    def range_above_1(self, n: Size, symbols: set[Atom]) -> Range:
        before = {s: self._ranges[s] for s in symbols}
        self._ranges.update({s: (max(low, 2), high) for s, (low, high) in before.items()})
        cache, self._cache = self._cache, {}
        for atom in _applied(n):
            (low, high), (least, most) = self._ranges[atom], self._range_applied(atom)
            before.setdefault(atom, (low, high))
            self._ranges[atom] = max(low, least), min(high, most)
            self._cache = {}
        interval = self.range_of(n)
        self._ranges.update(before)
        self._cache = cache
        return interval


def _applied(n: Int) -> Iterator[Apply]:
    """Yields the quotients, extremes and the like in `n`; inner ones before those that contain them."""
    for monomial, _ in n.terms if isinstance(n, Size) else ():
        for atom in monomial:
            if isinstance(atom, Apply):
                for arg in atom.args:
                    yield from _applied(arg)
                yield atom


def _is_extreme(monomial: Monomial) -> bool:
    atom = monomial[0] if len(monomial) == 1 else None
    return isinstance(atom, Apply) and atom.op in ("max", "min")


def _floor(x: float, y: float) -> float:
    if math.isinf(x):
        return x
    return (0 if x >= 0 else -1) if math.isinf(y) else x // y


def _times(a: Range, b: Range) -> Range:
    corners = [0 if x == 0 or y == 0 else x * y for x in a for y in b]
    return min(corners), max(corners)
