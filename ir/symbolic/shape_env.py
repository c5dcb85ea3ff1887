"""What is known of the sizes of one capture: ranges, equalities, and the conditions under which its code is right.

Questions about sizes come here (`is_zero`, `is_positive`, `settle`).  What follows from the ranges of the symbols and from earlier answers is
answered; anything else is answered by the hints, and becomes a condition that a call's guards check.
While the loop IR is built and compiled (`relaxed`), two sizes that are not the same in form count as different: the general code is right
for equal ones as well.

(One class: an answer becomes a fact, and what is made of sizes from then on depends on it.)

Of what is known only behind an op of the graph (`late` symbols, which may be 0) nothing is guessed: an answer is given if all such sizes
from 0, 1 or 2 on have the same one, and that they are is a condition that the call checks there.  Otherwise `undecided` raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from frameloom.config import config
from frameloom.ir.symbolic.asserted import refuse_in_assert
from frameloom.ir.symbolic.call_layouts import Soft
from frameloom.ir.symbolic.exact_division import Pair, divisions, undivided
from frameloom.ir.symbolic.expr import (
    MEANING,
    Apply,
    Atom,
    Int,
    Monomial,
    Size,
    Symbol,
    applied,
    atoms_of,
    divide,
    evaluated,
    inner_applies,
    is_given_stride,
    late_in,
    linear,
    lone_apply,
    not_1_in,
    numbered,
    shared_atoms,
    substitute,
)
from frameloom.ir.symbolic.ranges import Range, Ranges

LARGEST = 2**63 - 1  # of the numbers that guards compute with


@dataclass(frozen=True)
class Conditions:
    """Sizes that must be at least 0, those that must be 0, and those that must not be."""

    at_least_0: tuple[Size, ...]
    zero: tuple[Size, ...]
    not_0: tuple[Size, ...]

    def __str__(self) -> str:
        kinds = ((self.at_least_0, ">="), (self.zero, "=="), (self.not_0, "!="))
        return ", ".join(f"{n!r} {sign} 0" for sizes, sign in kinds for n in sizes)

    def hold(self, value: Callable[[Symbol], int]) -> bool:
        return (
            all(evaluated(n, value) >= 0 for n in self.at_least_0)
            and all(evaluated(n, value) == 0 for n in self.zero)
            and all(evaluated(n, value) != 0 for n in self.not_0)
        )


class Facts(Ranges):
    """The conditions are `at_least_0`, sizes that must be so, `zero` and `not_0`."""

    def __init__(self, node_of: Callable[[Size], Any] | None = None) -> None:
        super().__init__()
        self.symbols: list[Symbol] = []
        self.zero: dict[Size, Any] = {}
        self.not_0: dict[Size, Any] = {}
        self.relaxed = False
        self.refusing: type[Exception] | None = None  # raised where a size would be settled
        self.soft = Soft()  # of the present call
        self.note: Callable[[str], Any] = lambda text: None  # tells where a condition comes from
        self.undecided: Callable[[Size], NoReturn] = _undecided
        self.knows_late = False  # whether late symbols are numbers that code is given
        self._node_of = node_of
        self._nodes: dict[Size, Any] = {}
        self._sizes: dict[tuple[tuple[Monomial, int], ...], Size] = {}
        self._applied: dict[Any, Apply] = {}
        self._same: dict[Symbol, Int] = {}  # a symbol and what it equals
        self._fixed: dict[Atom, int] = {}  # quotients and extremes that are a number
        self._unsolved: dict[Size, None] = {}  # equations (`n == 0`) that no symbol gives way to
        self._unsolved_now: dict[Any, int] | None = None  # ... what makes a number of a sum
        self._resolved: dict[Size, Int] = {}
        self._exact: dict[Pair, None] = {}  # divisions that leave no rest
        self._exact_now: set[Pair] | None = None  # ... of what the symbols equal now
        self.computed: dict[Any, Int] = {}  # sums and products
        # What followed for ops (capture/shapes/inferred_cache.py).
        self.inferred: dict[Any, Any] = {}
        self._undo: list[Callable[[], Any]] = []

    def mark(self) -> int:
        """For `take_back`."""
        return len(self._undo)

    def take_back(self, mark: int) -> None:
        """Forget what was assumed since then, with everything that was made under it."""
        if len(self._undo) > mark:
            self.inferred.clear()
        while len(self._undo) > mark:
            self._undo.pop()()
            self._found.clear()

    def release(self) -> None:
        """The capture is over: what the symbols come from is not kept alive by them."""
        self.note = lambda text: None
        self._undo.clear()
        self.inferred.clear()
        self.undecided = _undecided
        for symbol in self.symbols:
            symbol.source = None

    # ---- making sizes

    def symbol(self, hint: int, source: Any, low: float = 1, high: float = math.inf) -> Size:
        """A new symbol, alone; `low` and `high` are for the guards to make sure of."""
        atom = Symbol(self, f"s{len(self.symbols)}", hint, source)
        self.symbols.append(atom)
        self._ranges[atom] = (low, high)
        made = self.make({(atom,): 1})
        assert isinstance(made, Size)
        return made

    def late_symbol(self, source: Any, bound: Int | None, least: int | None = 0) -> Size:
        """... of what is at most `bound`, at least `least`, and known only behind an op of the graph."""
        self.has_late = True
        self._found.clear()
        most = math.inf if bound is None else self.range_of(bound)[1]
        # Sizes to think of: not too small, and differences of two are none.
        hint = 7 + 4 * len(self.symbols)
        if bound is not None:
            half = (bound.hint if isinstance(bound, Size) else bound) // 2
            hint = half if half >= 2 else int(min(2, most))
        made = self.symbol(hint, source, -math.inf if least is None else least, most)
        lone: Any = made.terms[0][0][0]
        lone.late = True
        if isinstance(bound, Size):
            self._sure.add(bound - made)
            self._found.clear()
        return made

    def symbol_within(self, hint: int, source: Any, least: int | None, most: int | None) -> Size:
        """The size of a dimension, of which the user says more.  Where the hint does not keep to that, it is not believed."""
        made = self.symbol(hint, source)
        if least is not None and 1 < least <= hint:
            self._require(made - least)
        if most is not None and hint <= most:
            self._require(most - made)
        return made

    def make(self, terms: dict[Monomial, int]) -> Int:
        """The sum of products: an int where it is a constant."""
        kept = [(m, c) for m, c in terms.items() if c]
        if not kept:
            return 0
        if len(kept) == 1 and not kept[0][0]:
            return kept[0][1]
        kept.sort(key=lambda item: (-len(item[0]), [a.name for a in item[0]]))
        key = tuple(kept)
        found = self._sizes.get(key)
        if found is None:
            found = self._sizes[key] = object.__new__(Size)
            found.facts = self
            found.terms = key
            found.number = numbered(found)
            found.hint = sum(c * math.prod(a.hint for a in m) for m, c in key)
            if self.has_late and found.hint < 1 and late_in(found):
                found.hint = 1  # there is nothing in a captured call that it would be
        return found

    def apply(self, op: str, a: Int, b: Int) -> Int:
        if not isinstance(a, Size) and not isinstance(b, Size):
            return MEANING[op](a, b)
        atom = self._applied.get((op, a, b))
        if atom is None:
            atom = self._applied[op, a, b] = Apply(self, op, (a, b))
            self._ranges[atom] = self._range_applied(atom)
        return self.make({(atom,): 1})

    def extreme(self, op: str, a: Int, b: Int) -> Int:
        """max or min."""
        a, b = self.resolved(a), self.resolved(b)
        low, high = self.range_of(linear(self, ((a, 1), (b, -1))))
        if low >= 0:
            return a if op == "max" else b
        if high <= 0:
            return b if op == "max" else a
        if not isinstance(b, Size) or (isinstance(a, Size) and repr(b) < repr(a)):
            a, b = b, a
        return self.apply(op, a, b)

    def node_of(self, size: Size) -> Any:
        found = self._nodes.get(size)
        if found is None:
            assert self._node_of is not None
            found = self._nodes[size] = self._node_of(size)
        return found

    # ---- what is known

    def resolved(self, n: Int) -> Int:
        """With symbols that turned out to equal others, or a number, replaced, and without divisions that leave no rest."""
        if not isinstance(n, Size):
            return n
        if not (self._same or self._exact or self._fixed or self._unsolved):
            return n
        found = self._resolved.get(n)
        if found is None:
            found = self._replaced(n)
            if self._unsolved and isinstance(found, Size):
                sum_, times, rest = _without_number(found)
                known = self._numbers_of_sums().get(sum_)
                found = found if known is None else known * times + rest
            self._resolved[n] = found
        return found

    def _replaced(self, n: Size) -> Int:
        found: Int = n
        if any(s in self._same for s in atoms_of(n)) or (
            self._fixed and any(a in self._fixed for a in inner_applies(n))
        ):
            found = substitute(self, n, self._value)
        return undivided(self.with_numbers(found), self._known_exact())

    def _numbers_of_sums(self) -> dict[Any, int]:
        """What the equations that no symbol gave way to say."""
        if self._unsolved_now is None:
            self._unsolved_now = {}
            for n in map(self._replaced, self._unsolved):
                if isinstance(n, Size):
                    sum_, times, rest = _without_number(n)
                    if rest % times == 0:  # else there is no such call
                        self._unsolved_now[sum_] = -rest // times
                        self._unsolved_now[tuple((m, -c) for m, c in sum_)] = rest // times
        return self._unsolved_now

    def with_numbers(self, n: Int) -> Int:
        """With numbers in the place of the factors that are some.  (On terms, since arithmetic asks this.)"""
        if not self._fixed or not isinstance(n, Size):
            return n
        terms: dict[Monomial, int] = {}
        for monomial, factor in n.terms:
            factor *= math.prod(self._fixed.get(atom, 1) for atom in monomial)
            left = tuple(atom for atom in monomial if atom not in self._fixed)
            terms[left] = terms.get(left, 0) + factor
        return self.make(terms)

    def _known_exact(self) -> set[Pair]:
        if self._exact_now is None:
            self._exact_now = set()  # for sizes that are asked about meanwhile
            for a, k in self._exact:
                rest = divide(self, substitute(self, a, self._value), k)[1]
                if (modulo := lone_apply(rest, "mod")) is not None:
                    self._exact_now.add(modulo.args)
            self._resolved.clear()
        return self._exact_now

    def quotient(self, monomial: Monomial, factor: int, k: int) -> tuple[Monomial, int] | None:
        """The product, by as many divisions that leave no rest as show that `k` divides it."""
        for place, atom in enumerate(monomial):
            for a, d in self._known_exact():
                if (
                    a is self.make({(atom,): 1})
                    and type(d) is int
                    and math.gcd(k // math.gcd(k, factor), d) > 1
                ):
                    part = self.apply("floordiv", a, d)
                    assert isinstance(part, Size)
                    monomial = (*monomial[:place], part.terms[0][0][0], *monomial[place + 1 :])
                    factor *= d
                    break
            if factor % k == 0:
                return tuple(sorted(monomial)), factor
        return None

    def _value(self, symbol: Symbol) -> Int:
        found = self._same.get(symbol)
        return self.make({(symbol,): 1}) if found is None else found

    def surely_positive(self, n: Int) -> bool:
        return self.range_of(self.resolved(n))[0] > 0

    def surely_not_zero(self, n: Int) -> bool:
        low, high = self.range_of(self.resolved(n))
        return low > 0 or high < 0

    def surely_zero(self, n: Int) -> bool:
        n = self.resolved(n)
        return not isinstance(n, Size) and n == 0

    # ---- questions

    def is_zero(self, n: Int) -> bool:
        n = self.resolved(n)
        if not isinstance(n, Size):
            return bool(n == 0)
        n = self._without_positive(n)
        low, high = self.range_of(n)
        if low > 0 or high < 0 or n in self.not_0 or -n in self.not_0 or self.relaxed:
            return False
        if self.has_late and late_in(n):
            if self._suppose(n, lambda low, high: low > 0 or high < 0 or low == high):
                return self.range_of(n) == (0, 0)
            if not self.knows_late:
                self.undecided(n)
        if n.hint:
            self._keep(self.not_0, n)
            self.not_0[n] = self._noted(f"{n!r} != 0")
            return False
        if not self._divides(n):
            self._equate(n)
        return True

    def _without_positive(self, n: Size) -> Size:
        """Without the factors of all its parts that are positive for sure: it is 0 where what is left is, and has the same sign."""
        common = shared_atoms([monomial for monomial, _ in n.terms])
        shared = [atom for atom in common if self._ranges[atom][0] >= 1]
        divisor = math.gcd(*(c for _, c in n.terms))
        if divisor == 1 and not shared:
            return n
        terms: dict[Monomial, int] = {}
        for monomial, factor in n.terms:
            left = list(monomial)
            for atom in shared:
                left.remove(atom)
            terms[tuple(left)] = factor // divisor
        made = self.make(terms)
        return made if isinstance(made, Size) else n

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
        if self.has_late and late_in(n):
            if self._suppose(n, lambda low, high: low > 0 or high <= 0):
                return self.range_of(n)[0] > 0
            if not self.knows_late:
                self.undecided(n)
        if n.hint > 0:
            self._require(n - 1)
            return True
        self._require(-n)
        return False

    def _suppose(self, n: Size, decides: Callable[[float, float], bool]) -> bool:
        """Whether the range of `n` decides if its late symbols are at least 1, or 2, which then is a condition."""
        symbols = late_in(n)
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
            self._equate_late(known)
        return True

    def _equate_late(self, n: Size) -> None:
        for monomial, factor in reversed(n.terms):
            symbol = monomial[0] if len(monomial) == 1 else None
            if abs(factor) == 1 and isinstance(symbol, Symbol) and symbol.late:
                other = self.make({m: -c * factor for m, c in n.terms if m is not monomial})
                # What is made of it is there before a symbol that is known later.
                if not any(a is symbol or self._is_later(a, symbol) for a in atoms_of(other)):
                    self._replace(symbol, other)
                    self._solve_again()
                    return

    def _is_later(self, atom: Atom, symbol: Symbol) -> bool:
        late = late_in(self.make({(atom,): 1}))
        return any(self.symbols.index(s) > self.symbols.index(symbol) for s in late)

    def is_one_softly(self, n: Int, alone: bool = False) -> bool:
        """Whether it is 1, where that a size is not becomes a condition only if it shows (capture/symbolic/layout_assumptions.py); `alone`: in the call's own result."""
        n = self.resolved(n)
        if not isinstance(n, Size):
            return bool(n == 1)
        low, high = self.range_of(n)
        # Of a late size that is at most 1 it is asked at once whether it is: nothing else is left but 0.
        at_once = high <= 1 or (n.hint == 1 and not late_in(n))
        if at_once or any(map(is_given_stride, atoms_of(n))):
            return self.is_zero(n - 1)
        if low <= 1:
            (self.soft.alone if alone else self.soft.not_1).add(n)
        return False

    def not_0_softly(self, n: Size) -> Int:
        """As a factor of strides, where that is 1 for a dimension without elements: that there are some becomes a condition only if it shows."""
        size = self.resolved(n)
        if not isinstance(size, Size):
            return max(size, 1)
        if size.hint < 1 or late_in(size):
            return self.extreme("max", size, 1)
        if self.range_of(size)[0] < 1:
            self.soft.not_0.add(size)
        return size

    def differ_softly(self, a: Int, b: Int) -> bool:
        """Whether they differ, if no symbol is 1 that is not 1 in the captured call."""
        n = self.resolved(a - b)
        if not isinstance(n, Size):
            return bool(n)
        symbols = not_1_in(n)
        low, high = self.range_above_1(n, symbols)
        if low > 0 or high < 0:
            self.soft.not_1.update(self.make({(s,): 1}) for s in symbols)
            return True
        return not self.is_zero(n)

    def apart_softly(self, n: Int) -> None:
        """It is taken for other than 0, as in the captured call, where only layouts depend on that: that it is becomes a condition
        only if it shows."""
        n = self.resolved(n)
        if not isinstance(n, Size) or self.relaxed or late_in(n):
            return
        sizes = {s for s in not_1_in(n) if self._ranges[s][0] >= 1}
        low, high = self.range_above_1(n, sizes)
        if low <= 0 <= high:
            self.soft.apart.add(n)
        elif not self.surely_not_zero(n):
            self.soft.not_1.update(self.make({(s,): 1}) for s in sizes)

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
            self.soft.not_1.update(self.make({(s,): 1}) for s in symbols)
            return low > 0
        return self.is_positive(n)

    def assume_not_0(self, n: Int) -> None:
        self.is_zero(n)

    def assume_soft(self) -> None:
        """All that the present call takes sizes for becomes a condition."""
        for n in list(self.soft.conditions()):
            self.assume_not_0(n)

    def settle(self, n: Int) -> int:
        """Its value, which becomes a condition."""
        n = self.resolved(n)
        if not isinstance(n, Size):
            return int(n)
        if self.refusing is not None:
            raise self.refusing
        if self.has_late and late_in(n) and not self.knows_late:
            self.undecided(n)
        hint = n.hint
        self._equate(n - hint)
        return hint

    def hold(self, value: Callable[[Symbol], int]) -> bool:
        """Whether the conditions of which a call knows before it begins do, where the symbols have these values."""
        early = tuple(n for n in self.at_least_0 if not late_in(n))
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
        self.knows_late = True
        try:
            yield own
        finally:
            now = self.at_least_0, self.zero, self.not_0
            new = (tuple(n for n in a if n not in b) for a, b in zip(now, before, strict=True))
            found = Conditions(*new)
            self.at_least_0, self.zero, self.not_0 = before
            self.knows_late = False
            made = [atom for atom in self._ranges if atom not in ranges]
            self._ranges, self._most = ranges, most
            self._found.clear()
            for atom in made:
                assert isinstance(atom, Apply)
                ranges[atom] = self._range_applied(atom)
            if found.at_least_0 or found.zero or found.not_0:
                own.append(found)

    def late_conditions(self) -> list[Size]:
        """Late sizes that must be at least 0."""
        return [n for n in self.at_least_0 if late_in(n)] if self.has_late else []

    def settle_some(self, which: Callable[[Symbol], bool]) -> None:
        """Every value of these has an entry of its own."""
        for symbol in self.symbols:
            if not symbol.late and which(symbol):
                self.settle(self.make({(symbol,): 1}))

    def _require(self, n: Int) -> None:
        """`n >= 0` from now on."""
        if not isinstance(n, Size):
            return
        if (above := dict(n.terms).get((), 0) - LARGEST) > 0:  # which guards could not compute with
            n = self.make({m: c - above if m == () else c for m, c in n.terms})
            assert isinstance(n, Size)
        self._keep(self.at_least_0, n)
        self.at_least_0[n] = self._noted(f"{n!r} >= 0")
        terms = dict(n.terms)
        offset = terms.pop((), 0)
        if len(terms) == 1:
            ((monomial, factor),) = terms.items()
            if factor < 0:
                self._keep(self._most, monomial)
                most = self._most[monomial] = min(
                    self._most.get(monomial, math.inf), offset // -factor
                )
                if all(self._ranges[atom][0] >= 1 for atom in monomial):
                    for atom in monomial:  # none is greater than the product
                        self._keep(self._ranges, atom)
                        low, high = self._ranges[atom]
                        self._ranges[atom] = (low, min(high, most))
            if len(monomial) == 1:
                self._keep(self._ranges, monomial[0])
                low, high = self._ranges[monomial[0]]
                if factor > 0:
                    low = max(low, -(offset // factor))
                else:
                    high = min(high, offset // -factor)
                self._ranges[monomial[0]] = (low, high)
                lone = monomial[0]
                known = low == high and not self._keeps_forms()
                if known and isinstance(lone, Symbol) and lone.late:
                    self._replace(lone, int(low))
                    self._solve_again()

    def _keeps_forms(self) -> bool:
        """Whether what is made of the sizes so far stays as it is: behind the capture."""
        return self.relaxed or self.knows_late

    def _noted(self, text: str) -> Any:
        if config.verify:
            refuse_in_assert()
        return self.note(text)

    def _keep(self, table: dict[Any, Any], key: Any) -> None:
        """What `take_back` puts into the table again: before it changes."""
        self._found.clear()
        if key in table:
            self._undo.append(partial(table.__setitem__, key, table[key]))
        else:
            self._undo.append(partial(table.pop, key, None))

    def _equal_again(self, same: dict[Symbol, Int]) -> None:
        self._same = same
        self._forget_forms()

    def _equate(self, n: Size) -> None:
        """`n == 0` from now on."""
        self._solve(n)
        self._solve_again()

    def _solve_again(self) -> None:
        """What is known now may solve equations, and give another form to what is a number."""
        if self._keeps_forms():
            return
        for unsolved in list(self._unsolved):
            now = self._replaced(unsolved)
            if isinstance(now, Size) and now is not unsolved:
                self._keep(self._unsolved, unsolved)
                del self._unsolved[unsolved]
                self._solve(now)
        for atom, number in list(self._fixed.items()):
            assert isinstance(atom, Apply)  # a symbol gives way
            now = self.resolved(applied(self, atom, self._value) - number)
            if isinstance(now, Size) and not (self.has_late and late_in(now)):
                self._equate(now)
                return

    def _solve(self, n: Size) -> None:
        n = self._without_positive(n)
        self._keep(self.zero, n)
        self.zero[n] = self._noted(f"{n!r} == 0")
        if self._keeps_forms():
            return
        for monomial, factor in reversed(n.terms):
            symbol = monomial[0] if len(monomial) == 1 else None
            if abs(factor) != 1 or not isinstance(symbol, Symbol):
                continue
            others: dict[Monomial, int] = {m: -c * factor for m, c in n.terms if m is not monomial}
            other = self.make(others)
            if any(a is symbol for a in atoms_of(other)):
                continue
            if not _is_number(symbol) and any(map(_is_number, atoms_of(other))):
                continue  # what a tensor tells of itself, a graph may have no input for
            self._replace(symbol, other)
            return
        if (modulo := lone_apply(n, "mod")) is not None:
            self._undo.append(self._forget_forms)
            self._keep(self._exact, modulo.args)
            self._exact[modulo.args] = None
            self._forget_forms()
            return
        monomial, factor = n.terms[0]
        others = dict(n.terms[1:])
        if len(monomial) == 1 and abs(factor) == 1 and others.keys() <= {()}:
            self._undo.append(self._forget_forms)
            self._keep(self._fixed, monomial[0])
            self._fixed[monomial[0]] = -others.get((), 0) * factor
        else:
            self._undo.append(self._forget_forms)
            self._keep(self._unsolved, n)
            self._unsolved[n] = None
        self._forget_forms()

    def _forget_forms(self) -> None:
        self._resolved.clear()
        self.computed.clear()
        self._found.clear()
        self._exact_now = None
        self._unsolved_now = None

    def _replace(self, symbol: Symbol, other: Int) -> None:
        self._undo.append(partial(self._equal_again, dict(self._same)))
        self._same[symbol] = other
        low, high = self._ranges[symbol]
        for known in list(self._same):
            self._same[known] = substitute(self, self._same[known], self._value)
        self._forget_forms()
        if (
            isinstance(other, Size)
            and len(other.terms) == 1
            and other.terms[0][1] == 1
            and len(other.terms[0][0]) == 1
        ):
            atom = other.terms[0][0][0]
            self._keep(self._ranges, atom)
            own = self._ranges[atom]
            self._ranges[atom] = (max(low, own[0]), min(high, own[1]))
        elif isinstance(other, Size) and symbol.late and low > -math.inf:
            self._sure.add(other - int(low))
            self._found.clear()


def _without_number(n: Size) -> tuple[tuple[tuple[Monomial, int], ...], int, int]:
    """A sum without what its terms share, how often it is there, and what is added to that."""
    terms = dict(n.terms)
    rest = terms.pop((), 0)
    times = math.gcd(*terms.values())
    return tuple((m, c // times) for m, c in terms.items()), times, rest


def _undecided(n: Size) -> NoReturn:
    raise ValueError(f"{n!r} is not known before the call")


def _is_number(atom: Atom) -> bool:
    """Whether calls have it as an int, not as the size of a tensor."""
    return isinstance(atom, Symbol) and getattr(atom.source, "kind", "") == "int"
