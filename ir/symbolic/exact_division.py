"""Divisions without remainder by a condition of the code: `4 * (s // 4)` is `s` then.

In: a size, and the pairs (dividend, divisor) that leave no remainder.  Out: the size without such divisions,
where its form allows it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TypeAlias

from frameloom.ir.symbolic.expr import Apply, Int, Monomial, Size, hint_of, terms_of, without

Pair: TypeAlias = tuple[Int, Int]


def divisions(n: Size) -> list[Pair]:
    """Returns the divisions in `n` that leave no remainder in the captured call, as pairs."""
    pairs: dict[Pair, None] = {}
    for monomial, _ in n.terms:
        for atom in monomial:
            if isinstance(atom, Apply) and atom.op == "floordiv" and type(atom.args[1]) is int:
                a, k = atom.args
                if k > 1 and hint_of(a) % k == 0:
                    pairs[a, k] = None
    return list(pairs)


def undivided(n: Int, exact: Container[Pair]) -> Int:
    """Returns `n` with `c * k * (a // k)` written as `c * a`, and `a % k` as 0, for the pairs (a, k) of
    `exact`.  (It works on terms, because arithmetic calls it.)"""
    if not isinstance(n, Size):
        return n
    terms = dict(n.terms)
    while (match := _divided(terms, exact)) is not None:
        monomial, place, others = match
        factor, atom = terms.pop(monomial), monomial[place]
        assert isinstance(atom, Apply)
        a, k = atom.args
        if atom.op == "mod":
            continue
        divisor = k if type(k) is int else 1
        for part, times in terms_of(a).items():
            product = tuple(sorted((*others, *part)))
            terms[product] = terms.get(product, 0) + times * factor // divisor
    return n.shape_env.make(terms)


def _divided(
    terms: dict[Monomial, int], exact: Container[Pair]
) -> tuple[Monomial, int, Monomial] | None:
    """Finds a product with a factor that needs no division.  Returns the product, the place of the factor,
    and the other factors (without the divisor if that is a size)."""
    for monomial, factor in terms.items():
        for place, atom in enumerate(monomial):
            if isinstance(atom, Apply) and atom.op in ("floordiv", "mod") and atom.args in exact:
                k = atom.args[1]
                others = (*monomial[:place], *monomial[place + 1 :])
                if atom.op == "mod" or (type(k) is int and factor % k == 0):
                    return monomial, place, others
                if isinstance(k, Size) and len(k.terms) == 1 and k.terms[0][1] == 1:
                    rest = without(others, k.terms[0][0])
                    if rest is not None:
                        return monomial, place, rest
    return None
