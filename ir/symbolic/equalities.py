"""The sizes of one capture: each size is one object, and equal sizes are replaced by one form.

    make, apply, symbol    a size: the same object for the same sum of products
    resolved(n)            `n` in which parts are replaced by simpler equal ones
    _equate(n)             assumes `n == 0`; `_require(n)`: `n >= 0`
    mark, take_back        undo assumptions

An equation is solved for a symbol with the coefficient 1 or -1.  Without such a symbol it stays: as a
division without remainder, as a quotient with a fixed value, or as a sum with a fixed value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from frameloom.config import config
from frameloom.ir.symbolic.asserted import refuse_in_assert
from frameloom.ir.symbolic.atoms import (
    applied,
    atoms_of,
    inner_applies,
    lone_apply,
    lone_atom,
    substitute,
    unbacked_in,
)
from frameloom.ir.symbolic.exact_division import Pair, undivided
from frameloom.ir.symbolic.expr import (
    MEANING,
    Apply,
    Atom,
    Int,
    Monomial,
    Size,
    Symbol,
    divide,
    linear,
    numbered,
    shared_atoms,
)
from frameloom.ir.symbolic.undo import UndoableRanges

if TYPE_CHECKING:
    from frameloom.ir.symbolic.shape_env import ShapeEnv

MAX_INT64 = 2**63 - 1  # the largest number that guards can compute with


class Equalities(UndoableRanges):
    """Sizes and their equalities.  The conditions: sizes that must be at least 0 (`at_least_0`) or 0
    (`zero`)."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols: list[Symbol] = []
        self.zero: dict[Size, Any] = {}
        self.relaxed = False
        self.knows_unbacked = False  # whether the code gets unbacked symbols as numbers
        self.note: Callable[[str], Any] = lambda text: None  # records where a condition comes from
        self._sizes: dict[tuple[tuple[Monomial, int], ...], Size] = {}
        self._applied: dict[Any, Apply] = {}
        self._same: dict[Symbol, Int] = {}  # a symbol and the expression that it equals
        self._fixed: dict[Atom, int] = {}  # quotients and extremes with a fixed value
        self._unsolved: dict[Size, None] = {}  # equations (`n == 0`) that are solved for no symbol
        self._unsolved_now: dict[Any, int] | None = None  # ... as sums with their fixed values
        self._resolved: dict[Size, Int] = {}
        self._exact: dict[Pair, None] = {}  # divisions that leave no remainder
        self._exact_now: set[Pair] | None = None  # ... with the symbols replaced
        self.computed: dict[Any, Int] = {}  # sums and products

    def _as_env(self) -> ShapeEnv:
        """Returns itself as a ShapeEnv: the only subclass, which adds the questions (shape_env.py)."""
        return cast("ShapeEnv", self)

    # ---- making sizes

    def symbol(self, hint: int, source: Any, low: float = 1, high: float = math.inf) -> Size:
        """Returns a new symbol as a size; guards have to check the bounds `low` and `high`."""
        atom = Symbol(self._as_env(), f"s{len(self.symbols)}", hint, source)
        self.symbols.append(atom)
        self._ranges[atom] = (low, high)
        size = self.make({(atom,): 1})
        assert isinstance(size, Size)
        return size

    def unbacked_symbol(self, source: Any, bound: Int | None, least: int | None = 0) -> Size:
        """Returns a new symbol that is at most `bound`, at least `least`, and known only after an op of the
        graph."""
        self.has_unbacked = True
        self._cache.clear()
        most = math.inf if bound is None else self.range_of(bound)[1]
        # Invented hints: not too small, and the difference of two hints is never a hint.
        hint = 7 + 4 * len(self.symbols)
        if bound is not None:
            half = (bound.hint if isinstance(bound, Size) else bound) // 2
            hint = half if half >= 2 else int(min(2, most))
        size = self.symbol(hint, source, -math.inf if least is None else least, most)
        lone: Any = size.terms[0][0][0]
        lone.unbacked = True
        if isinstance(bound, Size):
            self._sure.add(bound - size)
            self._cache.clear()
        return size

    def symbol_within(self, hint: int, source: Any, least: int | None, most: int | None) -> Size:
        """Returns a symbol for the size of a dimension with bounds from the user.  A bound that the hint
        violates is ignored."""
        size = self.symbol(hint, source)
        if least is not None and 1 < least <= hint:
            self._require(size - least)
        if most is not None and hint <= most:
            self._require(most - size)
        return size

    def make(self, terms: dict[Monomial, int]) -> Int:
        """Returns the sum of products: an int if it is a constant."""
        nonzero = [(m, c) for m, c in terms.items() if c]
        if not nonzero:
            return 0
        if len(nonzero) == 1 and not nonzero[0][0]:
            return nonzero[0][1]
        nonzero.sort(key=lambda item: (-len(item[0]), [a.name for a in item[0]]))
        key = tuple(nonzero)
        size = self._sizes.get(key)
        if size is None:
            size = self._sizes[key] = object.__new__(Size)
            size.shape_env = self._as_env()
            size.terms = key
            size.number = numbered(size)
            size.hint = sum(c * math.prod(a.hint for a in m) for m, c in key)
            if self.has_unbacked and size.hint < 1 and unbacked_in(size):
                size.hint = 1  # an unbacked size has no value in the captured call
        return size

    def apply(self, op: str, a: Int, b: Int) -> Int:
        if not isinstance(a, Size) and not isinstance(b, Size):
            return MEANING[op](a, b)
        atom = self._applied.get((op, a, b))
        if atom is None:
            atom = self._applied[op, a, b] = Apply(self._as_env(), op, (a, b))
            self._ranges[atom] = self._range_applied(atom)
        return self.make({(atom,): 1})

    def extreme(self, op: str, a: Int, b: Int) -> Int:
        """Returns the maximum or minimum; `op` is "max" or "min"."""
        a, b = self.resolved(a), self.resolved(b)
        low, high = self.range_of(linear(self, ((a, 1), (b, -1))))
        if low >= 0:
            return a if op == "max" else b
        if high <= 0:
            return b if op == "max" else a
        if not isinstance(b, Size) or (isinstance(a, Size) and repr(b) < repr(a)):
            a, b = b, a
        return self.apply(op, a, b)

    # ---- what sizes equal

    def resolved(self, n: Int) -> Int:
        """Returns `n` with symbols replaced by the sizes or numbers that they equal, and without exact
        divisions."""
        if not isinstance(n, Size):
            return n
        if not (self._same or self._exact or self._fixed or self._unsolved):
            return n
        result = self._resolved.get(n)
        if result is None:
            result = self._replaced(n)
            if self._unsolved and isinstance(result, Size):
                sum_, times, rest = _without_number(result)
                known = self._numbers_of_sums().get(sum_)
                result = result if known is None else known * times + rest
            self._resolved[n] = result
        return result

    def _replaced(self, n: Size) -> Int:
        result: Int = n
        if any(s in self._same for s in atoms_of(n)) or (
            self._fixed and any(a in self._fixed for a in inner_applies(n))
        ):
            result = substitute(self, n, self._value)
        return undivided(self.with_numbers(result), self._known_exact())

    def _numbers_of_sums(self) -> dict[Any, int]:
        """Returns the sums that have a fixed value by the unsolved equations."""
        if self._unsolved_now is None:
            self._unsolved_now = {}
            for n in map(self._replaced, self._unsolved):
                if isinstance(n, Size):
                    sum_, times, rest = _without_number(n)
                    if rest % times == 0:  # otherwise no call satisfies the equation
                        self._unsolved_now[sum_] = -rest // times
                        self._unsolved_now[tuple((m, -c) for m, c in sum_)] = rest // times
        return self._unsolved_now

    def with_numbers(self, n: Int) -> Int:
        """Replaces factors with a fixed value by that value.  (It works on terms, because arithmetic calls
        it.)"""
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
            self._exact_now = set()  # for questions that come up during this computation
            for a, k in self._exact:
                rest = divide(self, substitute(self, a, self._value), k)[1]
                if (modulo := lone_apply(rest, "mod")) is not None:
                    self._exact_now.add(modulo.args)
            self._resolved.clear()
        return self._exact_now

    def quotient(self, monomial: Monomial, factor: int, k: int) -> tuple[Monomial, int] | None:
        """Rewrites the product by exact divisions until `k` divides its coefficient; None if that does not
        succeed."""
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
        replacement = self._same.get(symbol)
        return self.make({(symbol,): 1}) if replacement is None else replacement

    def _without_positive(self, n: Size) -> Size:
        """Returns `n` without the positive factors that all its terms share.  The result has the same sign as
        `n`, and is 0 exactly where `n` is."""
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
        reduced = self.make(terms)
        return reduced if isinstance(reduced, Size) else n

    def surely_positive(self, n: Int) -> bool:
        return self.range_of(self.resolved(n))[0] > 0

    def surely_not_zero(self, n: Int) -> bool:
        low, high = self.range_of(self.resolved(n))
        return low > 0 or high < 0

    def surely_zero(self, n: Int) -> bool:
        n = self.resolved(n)
        return not isinstance(n, Size) and n == 0

    # ---- assuming more

    def _require(self, n: Int) -> None:
        """Assumes `n >= 0`."""
        if not isinstance(n, Size):
            return
        if (above := dict(n.terms).get((), 0) - MAX_INT64) > 0:  # guards cannot compute with it
            n = self.make({m: c - above if m == () else c for m, c in n.terms})
            assert isinstance(n, Size)
        self._set(self.at_least_0, n, self._noted(f"{n!r} >= 0"))
        terms = dict(n.terms)
        offset = terms.pop((), 0)
        if len(terms) != 1:
            return
        ((monomial, factor),) = terms.items()
        if factor < 0:
            most = min(self._most.get(monomial, math.inf), offset // -factor)
            self._set(self._most, monomial, most)
            if all(self._ranges[atom][0] >= 1 for atom in monomial):
                for atom in monomial:  # no factor is greater than the product
                    self._narrow(atom, -math.inf, most)
        if len(monomial) == 1:
            lone = monomial[0]
            if factor > 0:
                self._narrow(lone, -(offset // factor), math.inf)
            else:
                self._narrow(lone, -math.inf, offset // -factor)
            low, high = self._ranges[lone]
            known = low == high and not self._is_frozen()
            if known and isinstance(lone, Symbol) and lone.unbacked:
                self._replace(lone, int(low))
                self._solve_pending()

    def _equate(self, n: Size) -> None:
        """Assumes `n == 0`."""
        self._solve(n)
        self._solve_pending()

    def _equate_unbacked(self, n: Size) -> None:
        for symbol, other in _solutions(n):
            # Expressions of this symbol are computed before a later symbol has a value.
            if symbol.unbacked and not any(self._is_later(a, symbol) for a in atoms_of(other)):
                self._replace(symbol, other)
                self._solve_pending()
                return

    def _is_later(self, atom: Atom, symbol: Symbol) -> bool:
        unbacked = unbacked_in(self.make({(atom,): 1}))
        return any(self.symbols.index(s) > self.symbols.index(symbol) for s in unbacked)

    def _solve_pending(self) -> None:
        """Solves open equations and rewrites fixed values under the assumptions that hold now."""
        if self._is_frozen():
            return
        for unsolved in list(self._unsolved):
            now = self._reduced_by_others(unsolved)
            if isinstance(now, Size) and now is not unsolved:
                self._record_undo(self._unsolved, unsolved)
                del self._unsolved[unsolved]
                self._solve(now)
        for atom, number in list(self._fixed.items()):
            assert isinstance(atom, Apply)  # a symbol would have been replaced
            now = self.resolved(applied(self, atom, self._value) - number)
            if isinstance(now, Size) and not (self.has_unbacked and unbacked_in(now)):
                self._equate(now)
                return

    def _reduced_by_others(self, unsolved: Size) -> Int:
        """Rewrites the equation by all other equations.  It is left out itself, as it would reduce itself to
        0."""
        held = self._unsolved
        self._unsolved = {n: None for n in held if n is not unsolved}
        self._clear_caches()
        now = self._replaced(unsolved)
        self._unsolved = held
        self._clear_caches()
        return now

    def _solve(self, n: Size) -> None:
        n = self._without_positive(n)
        self._set(self.zero, n, self._noted(f"{n!r} == 0"))
        if self._is_frozen():
            return
        for symbol, other in _solutions(n):
            # A tensor carries its own size, but the graph may have no input for an int.
            if _is_number(symbol) or not any(map(_is_number, atoms_of(other))):
                self._replace(symbol, other)
                return
        self._undo.append(self._clear_caches)
        monomial, factor = n.terms[0]
        others = dict(n.terms[1:])
        if (modulo := lone_apply(n, "mod")) is not None:
            self._set(self._exact, modulo.args, None)
        elif len(monomial) == 1 and abs(factor) == 1 and others.keys() <= {()}:
            self._set(self._fixed, monomial[0], -others.get((), 0) * factor)
        else:
            self._set(self._unsolved, n, None)
        self._clear_caches()

    def _replace(self, symbol: Symbol, other: Int) -> None:
        self._undo.append(partial(self._restore_equalities, dict(self._same)))
        self._same[symbol] = other
        low, high = self._ranges[symbol]
        for known in list(self._same):
            self._same[known] = substitute(self, self._same[known], self._value)
        self._clear_caches()
        if (atom := lone_atom(other)) is not None:
            self._narrow(atom, low, high)
        elif isinstance(other, Size) and symbol.unbacked and low > -math.inf:
            self._sure.add(other - int(low))
            self._cache.clear()

    def _restore_equalities(self, same: dict[Symbol, Int]) -> None:
        self._same = same
        self._clear_caches()

    def _clear_caches(self) -> None:
        self._resolved.clear()
        self.computed.clear()
        self._cache.clear()
        self._exact_now = None
        self._unsolved_now = None

    def _is_frozen(self) -> bool:
        """Whether existing sizes keep their forms: after the capture."""
        return self.relaxed or self.knows_unbacked

    def _noted(self, text: str) -> Any:
        if config.verify:
            refuse_in_assert()
        return self.note(text)


def _solutions(n: Size) -> Iterator[tuple[Symbol, Int]]:
    """Yields symbols, and the expression of others that each equals where `n` is 0."""
    for monomial, factor in reversed(n.terms):
        symbol = monomial[0] if len(monomial) == 1 else None
        if abs(factor) == 1 and isinstance(symbol, Symbol):
            other = n.shape_env.make({m: -c * factor for m, c in n.terms if m is not monomial})
            if not any(a is symbol for a in atoms_of(other)):
                yield symbol, other


def _without_number(n: Size) -> tuple[tuple[tuple[Monomial, int], ...], int, int]:
    """Splits a sum: the terms without constant, divided by their common factor; this factor; the constant."""
    terms = dict(n.terms)
    rest = terms.pop((), 0)
    times = math.gcd(*terms.values())
    return tuple((m, c // times) for m, c in terms.items()), times, rest


def _is_number(atom: Atom) -> bool:
    """Whether calls pass it as an int, not as the size of a tensor."""
    return isinstance(atom, Symbol) and getattr(atom.source, "kind", "") == "int"
