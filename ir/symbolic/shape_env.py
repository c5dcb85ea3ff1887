"""The shape environment of one capture: ranges, equalities, and the conditions under which its code is right.

It answers questions about sizes (`is_zero`, `is_positive`, `specialize`).  If the ranges of the symbols and
earlier answers decide a question, they give the answer.  Otherwise the hints do, and the answer becomes a
condition that a call's guards check.  While the loop IR is built and compiled (`relaxed`), two sizes with
different forms count as different: the general code is right for equal ones as well.

The hint of an unbacked symbol (known only after an op of the graph; may be 0) decides nothing.  A question
about such sizes has an answer if it is the same for all their values from 0, 1 or 2 on.  That they are at
least so large is a condition, which the call checks after the op.  If there is no such answer, `undecided`
raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from frameloom.ir.symbolic.atoms import (
    atoms_of,
    evaluated,
    is_given_stride,
    lone_apply,
    not_1_in,
    unbacked_in,
)
from frameloom.ir.symbolic.call_layouts import AssumedSizes
from frameloom.ir.symbolic.conditions import Conditions
from frameloom.ir.symbolic.equalities import Equalities
from frameloom.ir.symbolic.exact_division import divisions, undivided
from frameloom.ir.symbolic.expr import Apply, Atom, Int, Size, Symbol, divide
from frameloom.ir.symbolic.ranges import Range


class ShapeEnv(Equalities):
    """The conditions: sizes that must be at least 0 (`at_least_0`), 0 (`zero`), or other than 0 (`not_0`)."""

    def __init__(self, node_of: Callable[[Size], Any] | None = None) -> None:
        super().__init__()
        self.not_0: dict[Size, Any] = {}
        self.refusing: type[Exception] | None = None  # raised where a size would be specialized
        self.assumed_sizes = AssumedSizes()  # of the present call
        self.undecided: Callable[[Size], NoReturn] = _undecided
        self._node_of = node_of
        self._nodes: dict[Size, Any] = {}

    def release(self) -> None:
        """Ends the capture: drops the references to objects that the symbols come from."""
        self.note = lambda text: None
        self._undo.clear()
        self.inferred.clear()
        self.undecided = _undecided
        for symbol in self.symbols:
            symbol.source = None

    def node_of(self, size: Size) -> Any:
        node = self._nodes.get(size)
        if node is None:
            assert self._node_of is not None
            node = self._nodes[size] = self._node_of(size)
        return node

    def is_zero(self, n: Int) -> bool:
        n = self.resolved(n)
        if not isinstance(n, Size):
            return bool(n == 0)
        n = self._without_positive(n)
        low, high = self.range_of(n)
        if low > 0 or high < 0 or n in self.not_0 or -n in self.not_0 or self.relaxed:
            return False
        if self.has_unbacked and unbacked_in(n):
            if self._decide_by_bounds(n, lambda low, high: low > 0 or high < 0 or low == high):
                return self.range_of(n) == (0, 0)
            if not self.knows_unbacked:
                self.undecided(n)
        if n.hint:
            self._set(self.not_0, n, self._noted(f"{n!r} != 0"))
            return False
        if not self._divides(n):
            self._equate(n)
        return True

    def _divides(self, n: Size) -> bool:
        """Whether `n` is 0 if the divisions in it that leave no remainder in the captured call never do.  If
        so, that becomes the condition."""
        if (atom := lone_apply(n, "mod")) is not None:
            pairs = [
                pair for part in atom.args if isinstance(part, Size) for pair in divisions(part)
            ]
            exact = {*pairs, *self._known_exact()}
            rest = divide(self, *(undivided(part, exact) for part in atom.args))[1]
        else:
            pairs = divisions(n)
            rest = undivided(n, {*pairs, *self._known_exact()})
        if not pairs or isinstance(rest, Size) or rest:
            return False
        for a, k in pairs:
            rest = self.resolved(self.apply("mod", a, k))
            if isinstance(rest, Size):
                self._equate(rest)
        return True

    def is_positive(self, n: Int) -> bool:
        n = self.resolved(n)
        if isinstance(n, Size):
            n = self._without_positive(n)
        low, high = self.range_of(n)
        if low > 0 or high <= 0:
            return low > 0
        assert isinstance(n, Size)
        if n - 1 in self.at_least_0 or -n in self.at_least_0:
            return n - 1 in self.at_least_0
        if self.has_unbacked and unbacked_in(n):
            if self._decide_by_bounds(n, lambda low, high: low > 0 or high <= 0):
                return self.range_of(n)[0] > 0
            if not self.knows_unbacked:
                self.undecided(n)
        if n.hint > 0:
            self._require(n - 1)
            return True
        self._require(-n)
        return False

    def _decide_by_bounds(self, n: Size, decides: Callable[[float, float], bool]) -> bool:
        """Whether the range of `n` decides the question if its unbacked symbols are at least 0, 1 or 2.  If
        so, that bound becomes a condition."""
        symbols = unbacked_in(n)
        before: dict[Atom, Range] = {s: self._ranges[s] for s in symbols}
        for least in (0, 1, 2):
            if any(high < least for _, high in before.values()):
                return False
            self._ranges.update({s: (max(low, least), high) for s, (low, high) in before.items()})
            self._cache.clear()
            decided = decides(*self.range_of(n))
            self._ranges.update(before)
            self._cache.clear()
            if decided:
                for s, (low, _) in before.items():
                    if low < least:
                        self._require(self.make({(s,): 1}) - least)
                return True
        return False

    def expect_at_least_0(self, n: Size) -> bool:
        """Whether `n >= 0`, for a size with unbacked symbols; if this is not known, it is assumed and becomes
        a condition."""
        low, high = self.range_of(self.resolved(n))
        if low < 0 <= high:
            self._require(self.resolved(n))
        return high >= 0

    def expect_0(self, n: Size) -> bool:
        """Whether `n == 0`, assumed in the same way.  One of the symbols is replaced by an expression of the
        others."""
        known = self.resolved(n)
        low, high = self.range_of(known)
        if not isinstance(known, Size) or low > 0 or high < 0:
            return bool(low <= 0 <= high)
        self._require(known)
        self._require(-known)
        if not self._is_frozen():
            self._equate_unbacked(known)
        return True

    def is_one_deferred(self, n: Int, alone: bool = False) -> bool:
        """Whether `n` is 1.  The guard `n != 1` is deferred until the program can see a difference
        (capture/symbolic/layout_assumptions.py).  `alone`: only this call's own result depends on it."""
        n = self.resolved(n)
        if not isinstance(n, Size):
            return bool(n == 1)
        low, high = self.range_of(n)
        # An unbacked size that is at most 1 is decided at once: its only other value is 0.
        immediate = high <= 1 or (n.hint == 1 and not unbacked_in(n))
        if immediate or any(map(is_given_stride, atoms_of(n))):
            return self.is_zero(n - 1)
        if low <= 1:
            (self.assumed_sizes.alone if alone else self.assumed_sizes.not_1).add(n)
        return False

    def nonzero_deferred(self, n: Size) -> Int:
        """Returns `n` as a factor of strides, which is 1 for a dimension without elements.  The guard `n !=
        0` is deferred until the program can see a difference."""
        size = self.resolved(n)
        if not isinstance(size, Size):
            return max(size, 1)
        if size.hint < 1 or unbacked_in(size):
            return self.extreme("max", size, 1)
        if self.range_of(size)[0] < 1:
            self.assumed_sizes.not_0.add(size)
        return size

    def differ_deferred(self, a: Int, b: Int) -> bool:
        """Whether `a != b`, if no symbol is 1 that is not 1 in the captured call."""
        n = self.resolved(a - b)
        if not isinstance(n, Size):
            return bool(n)
        symbols = not_1_in(n)
        low, high = self.range_above_1(n, symbols)
        if low > 0 or high < 0:
            self._assume_not_1(symbols)
            return True
        return not self.is_zero(n)

    def assume_distinct_deferred(self, n: Int) -> None:
        """Assumes that `n` is not 0, as in the captured call, where only layouts depend on it.  The guard is
        deferred until the program can see a difference."""
        n = self.resolved(n)
        if not isinstance(n, Size) or self.relaxed or unbacked_in(n):
            return
        sizes = {s for s in not_1_in(n) if self._ranges[s][0] >= 1}
        low, high = self.range_above_1(n, sizes)
        if low <= 0 <= high:
            self.assumed_sizes.apart.add(n)
        elif not self.surely_not_zero(n):
            self._assume_not_1(sizes)

    def is_less_deferred(self, a: Int, b: Int) -> bool:
        """Whether `a < b`, if no symbol is 1 that is not 1 in the captured call."""
        n = self.resolved(b - a)
        if not isinstance(n, Size):
            return bool(n > 0)
        low, high = self.range_of(n)
        if low > 0 or high <= 0:
            return low > 0
        symbols = not_1_in(n)
        low, high = self.range_above_1(n, symbols)
        if low > 0 or high <= 0:
            self._assume_not_1(symbols)
            return low > 0
        return self.is_positive(n)

    def _assume_not_1(self, symbols: set[Atom]) -> None:
        self.assumed_sizes.not_1.update(self.make({(s,): 1}) for s in symbols)

    def assume_not_0(self, n: Int) -> None:
        self.is_zero(n)

    def assume_sizes(self) -> None:
        """Turns all size assumptions of the present call into conditions."""
        for n in list(self.assumed_sizes.conditions()):
            self.assume_not_0(n)

    def specialize(self, n: Int) -> int:
        """Specializes `n`: returns its hint, and `n == hint` becomes a condition."""
        n = self.resolved(n)
        if not isinstance(n, Size):
            return int(n)
        if self.refusing is not None:
            raise self.refusing
        if self.has_unbacked and unbacked_in(n) and not self.knows_unbacked:
            self.undecided(n)
        hint = n.hint
        self._equate(n - hint)
        return hint

    def hold(self, value: Callable[[Symbol], int]) -> bool:
        """Whether the conditions that can be checked before the call runs hold for these values of the
        symbols."""
        early = tuple(n for n in self.at_least_0 if not unbacked_in(n))
        return Conditions(early, tuple(self.zero), tuple(self.not_0)).hold(value)

    def is_possible(self, value: Callable[[Symbol], int]) -> bool:
        """Whether symbols can have these values together: for example, a mask selects at most all
        elements."""
        return all(evaluated(n, value) >= 0 for n in self._sure)

    def upper_bound_of(self, symbol: Symbol, value: Callable[[Symbol], int]) -> float:
        """Returns the greatest possible value of `symbol` if the other symbols have these values."""
        above = [n for n in self._sure if dict(n.terms).get((symbol,)) == -1]
        rest = [value(symbol) + evaluated(n, value) for n in above]
        return min(self._ranges[symbol][1], *rest, math.inf)

    @contextmanager
    def apart(self) -> Iterator[list[Conditions]]:
        """Collects conditions for code that is compiled after the guards are made, and that gets all sizes as
        numbers.  Conditions that arise inside the block belong to that code.  Afterwards the list has them,
        if there are any."""
        own: list[Conditions] = []
        before = self.at_least_0, self.zero, self.not_0
        ranges, most = self._ranges, self._most
        self.at_least_0, self.zero, self.not_0 = ({**known} for known in before)
        self._ranges, self._most = {**ranges}, {**most}
        self._cache.clear()
        self.knows_unbacked = True
        try:
            yield own
        finally:
            now = self.at_least_0, self.zero, self.not_0
            new = (tuple(n for n in a if n not in b) for a, b in zip(now, before, strict=True))
            conditions = Conditions(*new)
            self.at_least_0, self.zero, self.not_0 = before
            self.knows_unbacked = False
            new_atoms = [atom for atom in self._ranges if atom not in ranges]
            self._ranges, self._most = ranges, most
            self._cache.clear()
            for atom in new_atoms:
                assert isinstance(atom, Apply)
                ranges[atom] = self._range_applied(atom)
            if conditions.at_least_0 or conditions.zero or conditions.not_0:
                own.append(conditions)

    def unbacked_conditions(self) -> list[Size]:
        """Returns the sizes with unbacked symbols that must be at least 0."""
        return [n for n in self.at_least_0 if unbacked_in(n)] if self.has_unbacked else []

    def specialize_symbols(self, which: Callable[[Symbol], bool]) -> None:
        """Specializes the symbols that `which` selects: each of their values gets an entry of its own."""
        for symbol in self.symbols:
            if not symbol.unbacked and which(symbol):
                self.specialize(self.make({(symbol,): 1}))


def _undecided(n: Size) -> NoReturn:
    raise ValueError(f"{n!r} is not known before the call")
