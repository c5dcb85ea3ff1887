"""What is known of the sizes of one capture: ranges, equalities, and the conditions under which its code is right.

Questions about sizes come here (`is_zero`, `is_positive`, `settle`).  What follows from the ranges of the symbols and from earlier answers is
answered; anything else is answered by the hints, and becomes a condition that a call's guards check.
While the loop IR is built and compiled (`relaxed`), two sizes that are not the same in form count as different: the general code is right
for equal ones as well.

Of what is known only behind an op of the graph (`unbacked` symbols, which may be 0) nothing is guessed: an answer is given if all such sizes
from 0, 1 or 2 on have the same one, and that they are is a condition that the call checks there.  Otherwise `undecided` raises.
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
    """The conditions are `at_least_0`, sizes that must be so, `zero` and `not_0`."""

    def __init__(self, node_of: Callable[[Size], Any] | None = None) -> None:
        super().__init__()
        self.not_0: dict[Size, Any] = {}
        self.refusing: type[Exception] | None = None  # raised where a size would be settled
        self.assumed_sizes = AssumedSizes()  # of the present call
        self.undecided: Callable[[Size], NoReturn] = _undecided
        self._node_of = node_of
        self._nodes: dict[Size, Any] = {}

    def release(self) -> None:
        """The capture is over: what the symbols come from is not kept alive by them."""
        self.note = lambda text: None
        self._undo.clear()
        self.inferred.clear()
        self.undecided = _undecided
        for symbol in self.symbols:
            symbol.source = None

    def node_of(self, size: Size) -> Any:
        found = self._nodes.get(size)
        if found is None:
            assert self._node_of is not None
            found = self._nodes[size] = self._node_of(size)
        return found

    def is_zero(self, n: Int) -> bool:
        n = self.resolved(n)
        if not isinstance(n, Size):
            return bool(n == 0)
        n = self._without_positive(n)
        low, high = self.range_of(n)
        if low > 0 or high < 0 or n in self.not_0 or -n in self.not_0 or self.relaxed:
            return False
        if self.has_unbacked and unbacked_in(n):
            if self._suppose(n, lambda low, high: low > 0 or high < 0 or low == high):
                return self.range_of(n) == (0, 0)
            if not self.knows_unbacked:
                self.undecided(n)
        if n.hint:
            self._keep(self.not_0, n)
            self.not_0[n] = self._noted(f"{n!r} != 0")
            return False
        if not self._divides(n):
            self._equate(n)
        return True

    def _divides(self, n: Size) -> bool:
        """Whether `n` is 0 if those divisions leave no rest that leave none in the captured call, which then becomes the condition."""
        if (atom := lone_apply(n, "mod")) is not None:
            found = [
                pair for part in atom.args if isinstance(part, Size) for pair in divisions(part)
            ]
            exact = {*found, *self._known_exact()}
            rest = divide(self, *(undivided(part, exact) for part in atom.args))[1]
        else:
            found = divisions(n)
            rest = undivided(n, {*found, *self._known_exact()})
        if not found or isinstance(rest, Size) or rest:
            return False
        for a, k in found:
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
            if self._suppose(n, lambda low, high: low > 0 or high <= 0):
                return self.range_of(n)[0] > 0
            if not self.knows_unbacked:
                self.undecided(n)
        if n.hint > 0:
            self._require(n - 1)
            return True
        self._require(-n)
        return False

    def _suppose(self, n: Size, decides: Callable[[float, float], bool]) -> bool:
        """Whether the range of `n` decides if its late symbols are at least 1, or 2, which then is a condition."""
        symbols = unbacked_in(n)
        before: dict[Atom, Range] = {s: self._ranges[s] for s in symbols}
        for least in (0, 1, 2):
            if any(high < least for _, high in before.values()):
                return False
            self._ranges.update({s: (max(low, least), high) for s, (low, high) in before.items()})
            self._found.clear()
            decided = decides(*self.range_of(n))
            self._ranges.update(before)
            self._found.clear()
            if decided:
                for s, (low, _) in before.items():
                    if low < least:
                        self._require(self.make({(s,): 1}) - least)
                return True
        return False

    def expect_at_least_0(self, n: Size) -> bool:
        """... of what depends on late symbols: a condition, unless it is known."""
        low, high = self.range_of(self.resolved(n))
        if low < 0 <= high:
            self._require(self.resolved(n))
        return high >= 0

    def expect_0(self, n: Size) -> bool:
        """Likewise.  One of the symbols gives way to the others."""
        known = self.resolved(n)
        low, high = self.range_of(known)
        if not isinstance(known, Size) or low > 0 or high < 0:
            return bool(low <= 0 <= high)
        self._require(known)
        self._require(-known)
        if not self._keeps_forms():
            self._equate_unbacked(known)
        return True

    def is_one_softly(self, n: Int, alone: bool = False) -> bool:
        """Whether it is 1, where that a size is not becomes a condition only if it shows (capture/symbolic/layout_assumptions.py); `alone`: in the call's own result."""
        n = self.resolved(n)
        if not isinstance(n, Size):
            return bool(n == 1)
        low, high = self.range_of(n)
        # Of a late size that is at most 1 it is asked at once whether it is: nothing else is left but 0.
        at_once = high <= 1 or (n.hint == 1 and not unbacked_in(n))
        if at_once or any(map(is_given_stride, atoms_of(n))):
            return self.is_zero(n - 1)
        if low <= 1:
            (self.assumed_sizes.alone if alone else self.assumed_sizes.not_1).add(n)
        return False

    def not_0_softly(self, n: Size) -> Int:
        """As a factor of strides, where that is 1 for a dimension without elements: that there are some becomes a condition only if it shows."""
        size = self.resolved(n)
        if not isinstance(size, Size):
            return max(size, 1)
        if size.hint < 1 or unbacked_in(size):
            return self.extreme("max", size, 1)
        if self.range_of(size)[0] < 1:
            self.assumed_sizes.not_0.add(size)
        return size

    def differ_softly(self, a: Int, b: Int) -> bool:
        """Whether they differ, if no symbol is 1 that is not 1 in the captured call."""
        n = self.resolved(a - b)
        if not isinstance(n, Size):
            return bool(n)
        symbols = not_1_in(n)
        low, high = self.range_above_1(n, symbols)
        if low > 0 or high < 0:
            self.assumed_sizes.not_1.update(self.make({(s,): 1}) for s in symbols)
            return True
        return not self.is_zero(n)

    def apart_softly(self, n: Int) -> None:
        """It is taken for other than 0, as in the captured call, where only layouts depend on that: that it is becomes a condition
        only if it shows."""
        n = self.resolved(n)
        if not isinstance(n, Size) or self.relaxed or unbacked_in(n):
            return
        sizes = {s for s in not_1_in(n) if self._ranges[s][0] >= 1}
        low, high = self.range_above_1(n, sizes)
        if low <= 0 <= high:
            self.assumed_sizes.apart.add(n)
        elif not self.surely_not_zero(n):
            self.assumed_sizes.not_1.update(self.make({(s,): 1}) for s in sizes)

    def is_less_softly(self, a: Int, b: Int) -> bool:
        """`a < b`, if no symbol is 1 that is not 1 in the captured call."""
        n = self.resolved(b - a)
        if not isinstance(n, Size):
            return bool(n > 0)
        low, high = self.range_of(n)
        if low > 0 or high <= 0:
            return low > 0
        symbols = not_1_in(n)
        low, high = self.range_above_1(n, symbols)
        if low > 0 or high <= 0:
            self.assumed_sizes.not_1.update(self.make({(s,): 1}) for s in symbols)
            return low > 0
        return self.is_positive(n)

    def assume_not_0(self, n: Int) -> None:
        self.is_zero(n)

    def assume_sizes(self) -> None:
        """All that the present call takes sizes for becomes a condition."""
        for n in list(self.assumed_sizes.conditions()):
            self.assume_not_0(n)

    def settle(self, n: Int) -> int:
        """Its value, which becomes a condition."""
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
        """Whether the conditions of which a call knows before it begins do, where the symbols have these values."""
        early = tuple(n for n in self.at_least_0 if not unbacked_in(n))
        return Conditions(early, tuple(self.zero), tuple(self.not_0)).hold(value)

    def is_possible(self, value: Callable[[Symbol], int]) -> bool:
        """Whether symbols can have these values together: a mask selects no more than there is."""
        return all(evaluated(n, value) >= 0 for n in self._sure)

    def most_of(self, symbol: Symbol, value: Callable[[Symbol], int]) -> float:
        """... and how large that symbol can be beside the values of the others."""
        above = [n for n in self._sure if dict(n.terms).get((symbol,)) == -1]
        rest = [value(symbol) + evaluated(n, value) for n in above]
        return min(self._ranges[symbol][1], *rest, math.inf)

    @contextmanager
    def apart(self) -> Iterator[list[Conditions]]:
        """For code that is compiled when the guards are made already, and given all sizes: the conditions that come meanwhile are its own.  They
        are in the list behind, if there are any."""
        own: list[Conditions] = []
        before = self.at_least_0, self.zero, self.not_0
        ranges, most = self._ranges, self._most
        self.at_least_0, self.zero, self.not_0 = ({**known} for known in before)
        self._ranges, self._most = {**ranges}, {**most}
        self._found.clear()
        self.knows_unbacked = True
        try:
            yield own
        finally:
            now = self.at_least_0, self.zero, self.not_0
            new = (tuple(n for n in a if n not in b) for a, b in zip(now, before, strict=True))
            found = Conditions(*new)
            self.at_least_0, self.zero, self.not_0 = before
            self.knows_unbacked = False
            made = [atom for atom in self._ranges if atom not in ranges]
            self._ranges, self._most = ranges, most
            self._found.clear()
            for atom in made:
                assert isinstance(atom, Apply)
                ranges[atom] = self._range_applied(atom)
            if found.at_least_0 or found.zero or found.not_0:
                own.append(found)

    def unbacked_conditions(self) -> list[Size]:
        """Late sizes that must be at least 0."""
        return [n for n in self.at_least_0 if unbacked_in(n)] if self.has_unbacked else []

    def settle_some(self, which: Callable[[Symbol], bool]) -> None:
        """Every value of these has an entry of its own."""
        for symbol in self.symbols:
            if not symbol.unbacked and which(symbol):
                self.settle(self.make({(symbol,): 1}))


def _undecided(n: Size) -> NoReturn:
    raise ValueError(f"{n!r} is not known before the call")
