"""Translates sizes of the loop IR for the plan: polynomials become lists of additions and multiplications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.expr import Apply, Atom, Int, Size, Symbol
from frameloom.runtime.spec import SizeCall, SizeRef


class PlanSizes:
    """Collects `calls` (PlanSpec.sizes).  `leaf` returns where a call finds the value of a symbol."""

    def __init__(self, leaf: Callable[[Symbol], SizeCall]) -> None:
        self.calls: list[SizeCall] = []
        self._leaf = leaf
        self._known: dict[Any, int] = {}

    def ref(self, n: Int) -> SizeRef | int:
        """Returns the number, or the SizeRef that replaces it in a plan."""
        return SizeRef(self.index(n)) if isinstance(n, Size) else n

    def refs(self, numbers: Any) -> tuple[SizeRef | int, ...]:
        return tuple(map(self.ref, numbers))

    def index(self, n: Int) -> int:
        """Returns the index of the number in `calls`."""
        if not isinstance(n, Size):
            return self._call("const", int(n))
        index = self._known.get(n)
        if index is None:
            total: int | None = None
            for monomial, factor in n.terms:
                part = self._product(monomial, factor)
                total = part if total is None else self._call("add", total, part)
            assert total is not None
            index = self._known[n] = total
        return index

    def symbol(self, symbol: Symbol) -> int:
        """Returns the index of a symbol's value."""
        call = self._leaf(symbol)
        return self._call(call.op, *call.operands)

    def require(self, n: Size) -> None:
        """Makes the plan refuse calls in which `n` is negative."""
        # Not `n + 1`: that would replace symbols that are assumed equal to others.
        more = self._call("add", self.index(n), self.index(1))
        self._call("floordiv", self.index(1), self._call("max", more, self.index(0)))

    def _product(self, monomial: tuple[Atom, ...], factor: int) -> int:
        total: int | None = None
        for atom in monomial:
            part = self._atom(atom)
            total = part if total is None else self._call("mul", total, part)
        if total is None:
            return self._call("const", factor)
        return total if factor == 1 else self._call("mul", total, self._call("const", factor))

    def _atom(self, atom: Atom) -> int:
        if isinstance(atom, Apply):
            a, b = map(self.index, atom.args)
            if atom.op in ("floordiv", "mod") and unbacked_in(atom.args[1]):
                # The result of a division by 0 is not used.
                b = self._call("max", b, self.index(1))
            return self._call(atom.op, a, b)
        assert isinstance(atom, Symbol)
        return self.symbol(atom)

    def _call(self, op: str, *operands: int) -> int:
        index = self._known.get((op, operands))
        if index is None:
            index = self._known[op, operands] = len(self.calls)
            self.calls.append(SizeCall(op, operands))
        return index
