"""The atoms of sizes: which there are, and sizes with others, or with numbers, in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from frameloom.ir.symbolic.expr import MEANING, Apply, Atom, Int, Size, Symbol, divide

if TYPE_CHECKING:
    from frameloom.ir.symbolic.equalities import Equalities


def atoms_of(n: Int) -> Iterator[Atom]:
    """Every symbol in it, those inside divisions included."""
    if isinstance(n, Size):
        for monomial, _ in n.terms:
            for atom in monomial:
                yield from atoms_inside(atom)


def not_1_in(n: Int) -> set[Atom]:
    """Its symbols that are not 1 in the captured call, as far as that is known; without strides, of which one alone may decide how a tensor lies."""
    return {
        a
        for a in atoms_of(n)
        if (a.hint != 1 or (isinstance(a, Symbol) and a.unbacked)) and not is_given_stride(a)
    }


def is_given_stride(atom: Atom) -> bool:
    """Whether it is a stride of a tensor that the program is given, and not made of sizes."""
    return getattr(getattr(atom, "source", None), "kind", None) == "stride"


def unbacked_in(n: Int) -> list[Symbol]:
    """Its symbols that are known only behind an op of the graph."""
    return [a for a in dict.fromkeys(atoms_of(n)) if isinstance(a, Symbol) and a.unbacked]


def lone_symbol(size: Size) -> Symbol | None:
    """The symbol that it is."""
    if len(size.terms) != 1:
        return None
    ((monomial, factor),) = size.terms
    one = len(monomial) == 1 and factor == 1 and isinstance(monomial[0], Symbol)
    return monomial[0] if one else None  # type: ignore[return-value]


def lone_apply(n: Int, op: str) -> Apply | None:
    """The division, maximum or minimum of which it is a multiple."""
    if not isinstance(n, Size) or len(n.terms) != 1 or len(n.terms[0][0]) != 1:
        return None
    atom = n.terms[0][0][0]
    return atom if isinstance(atom, Apply) and atom.op == op else None


def atoms_inside(atom: Atom) -> Iterator[Atom]:
    if isinstance(atom, Apply):
        for a in atom.args:
            yield from atoms_of(a)
    else:
        yield atom


def inner_applies(n: Int) -> Iterator[Apply]:
    """The divisions and extremes inside of others."""
    outer = [a for monomial, _ in n.terms for a in monomial] if isinstance(n, Size) else ()
    for operand in (x for a in outer if isinstance(a, Apply) for x in a.args):
        if isinstance(operand, Size):
            yield from (a for m, _ in operand.terms for a in m if isinstance(a, Apply))
            yield from inner_applies(operand)


def with_atoms(n: Size, replaced: Callable[[Atom], Int]) -> Int:
    """With others in the place of its outermost factors."""
    total: Int = 0
    for monomial, factor in n.terms:
        part: Int = factor
        for atom in monomial:
            part = part * replaced(atom)
        total = total + part
    return total


def substitute(shape_env: Equalities, n: Int, known: Callable[[Symbol], Int]) -> Int:
    """With other values for its symbols."""
    if not isinstance(n, Size):
        return n
    total: Int = 0
    for monomial, factor in n.terms:
        part: Int = factor
        for atom in monomial:
            part = part * _replaced(shape_env, atom, known)
        total = total + part
    return total


def _replaced(shape_env: Equalities, atom: Atom, known: Callable[[Symbol], Int]) -> Int:
    if isinstance(atom, Symbol):
        return known(atom)
    assert isinstance(atom, Apply)
    return shape_env.with_numbers(applied(shape_env, atom, known))


def applied(shape_env: Equalities, atom: Apply, known: Callable[[Symbol], Int]) -> Int:
    """What it makes of what its operands are then."""
    a, b = (substitute(shape_env, x, known) for x in atom.args)
    if a is atom.args[0] and b is atom.args[1]:
        return shape_env.make({(atom,): 1})
    if not isinstance(a, Size) and not isinstance(b, Size):
        return MEANING[atom.op](a, b)
    if atom.op in ("max", "min"):
        return shape_env.extreme(atom.op, a, b)
    return divide(shape_env, a, b)[atom.op == "mod"]


def evaluated(n: Int, value: Callable[[Symbol], int]) -> int:
    """What it is where the symbols have these values."""
    if not isinstance(n, Size):
        return int(n)
    total = 0
    for monomial, factor in n.terms:
        for atom in monomial:
            if isinstance(atom, Apply):
                factor *= MEANING[atom.op](*(evaluated(a, value) for a in atom.args))
            else:
                assert isinstance(atom, Symbol)
                factor *= value(atom)
        total += factor
    return total
