"""The atoms of sizes: finds them, and replaces them by other sizes or by numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from frameloom.ir.symbolic.expr import MEANING, Apply, Atom, Int, Size, Symbol, divide

if TYPE_CHECKING:
    from frameloom.ir.symbolic.equalities import Equalities


def atoms_of(n: Int) -> Iterator[Symbol]:
    """Yields every symbol in `n`, also those inside divisions."""
    if isinstance(n, Size):
        for monomial, _ in n.terms:
            for atom in monomial:
                yield from atoms_inside(atom)


def not_1_in(n: Int) -> set[Atom]:
    """Returns the symbols that are not 1 in the captured call, as far as that is known.  Strides are left
    out, since a single one may decide a tensor's layout."""
    return {
        a
        for a in atoms_of(n)
        if (a.hint != 1 or (isinstance(a, Symbol) and a.unbacked)) and not is_given_stride(a)
    }


def is_given_stride(atom: Atom) -> bool:
    """Whether it is a stride of an input tensor, and not computed from sizes."""
    return getattr(getattr(atom, "source", None), "kind", None) == "stride"


def unbacked_in(n: Int) -> list[Symbol]:
    """Returns the unbacked symbols of `n`, whose values are known only after an op of the graph."""
    return [a for a in dict.fromkeys(atoms_of(n)) if isinstance(a, Symbol) and a.unbacked]


def lone_atom(n: Int) -> Atom | None:
    """Returns the factor if `n` is exactly one, else None."""
    if not isinstance(n, Size) or len(n.terms) != 1:
        return None
    ((monomial, factor),) = n.terms
    return monomial[0] if factor == 1 and len(monomial) == 1 else None


def lone_symbol(n: Int) -> Symbol | None:
    """Returns the symbol if `n` is exactly one, else None."""
    atom = lone_atom(n)
    return atom if isinstance(atom, Symbol) else None


def lone_apply(n: Int, op: str) -> Apply | None:
    """Returns the division, maximum or minimum if `n` is a multiple of one, else None."""
    if not isinstance(n, Size) or len(n.terms) != 1 or len(n.terms[0][0]) != 1:
        return None
    atom = n.terms[0][0][0]
    return atom if isinstance(atom, Apply) and atom.op == op else None


def atoms_inside(atom: Atom) -> Iterator[Symbol]:
    if isinstance(atom, Apply):
        for a in atom.args:
            yield from atoms_of(a)
    else:
        yield atom  # type: ignore[misc]


def inner_applies(n: Int) -> Iterator[Apply]:
    """Yields the divisions and extremes inside other ones."""
    outer = [a for monomial, _ in n.terms for a in monomial] if isinstance(n, Size) else ()
    for operand in (x for a in outer if isinstance(a, Apply) for x in a.args):
        if isinstance(operand, Size):
            yield from (a for m, _ in operand.terms for a in m if isinstance(a, Apply))
            yield from inner_applies(operand)


def with_atoms(n: Size, replaced: Callable[[Atom], Int]) -> Int:
    """Replaces the outermost factors of `n`."""
    total: Int = 0
    for monomial, factor in n.terms:
        part: Int = factor
        for atom in monomial:
            part = part * replaced(atom)
        total = total + part
    return total


def substitute(shape_env: Equalities, n: Int, known: Callable[[Symbol], Int]) -> Int:
    """Replaces the symbols of `n` by other values."""

    def replaced(atom: Atom) -> Int:
        if isinstance(atom, Apply):
            return shape_env.with_numbers(applied(shape_env, atom, known))
        assert isinstance(atom, Symbol)
        return known(atom)

    return with_atoms(n, replaced) if isinstance(n, Size) else n


def applied(shape_env: Equalities, atom: Apply, known: Callable[[Symbol], Int]) -> Int:
    """Returns the division, maximum or minimum of its operands with their symbols replaced."""
    a, b = (substitute(shape_env, x, known) for x in atom.args)
    if a is atom.args[0] and b is atom.args[1]:
        return shape_env.make({(atom,): 1})
    if not isinstance(a, Size) and not isinstance(b, Size):
        return MEANING[atom.op](a, b)
    if atom.op in ("max", "min"):
        return shape_env.extreme(atom.op, a, b)
    return divide(shape_env, a, b)[atom.op == "mod"]


def evaluated(n: Int, value: Callable[[Symbol], int]) -> int:
    """Returns the value of `n` for these values of the symbols."""
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
