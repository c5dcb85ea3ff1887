"""Guards for a capture's assumptions about symbolic sizes: programs for capture/native/guard_sizes.c."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from frameloom.capture import _capture
from frameloom.capture.guards.source import Origin
from frameloom.capture.values.numbers.size import postfix
from frameloom.errors import Skip
from frameloom.ir.symbolic.atoms import atoms_of, unbacked_in
from frameloom.ir.symbolic.equalities import MAX_INT64
from frameloom.ir.symbolic.expr import Apply, Int, Size, Symbol

if TYPE_CHECKING:
    from frameloom.capture.interpreter.tracer import Tracer

OPS = {name: number for number, name in enumerate(_capture.SIZE_OPS)}
SIGNS = {"==": operator.eq, "!=": operator.ne, ">=": operator.ge}


def guard_sizes(t: Tracer) -> None:
    shape_env = t.recorder.shape_env
    conditions = (shape_env.zero, "=="), (shape_env.not_0, "!="), (shape_env.at_least_0, ">=")
    for sizes, sign in conditions:
        for size in sizes:
            if unbacked_in(size):
                continue  # the call itself checks it
            if any(atom.source.origin is None for atom in atoms_of(size)):
                _guard_computed(t, size, sign)
                continue
            origins: list[Origin] = []
            program = [*_program(size, origins), (OPS[sign], 0, 0)]
            if any(step == OPS["const"] and abs(value) > MAX_INT64 for step, value, _ in program):
                _guard_computed(t, size, sign)
                continue
            t.guards.sizes(origins[0], condition(size, sign), tuple(program))


def _guard_computed(t: Tracer, size: Size, sign: str) -> None:
    """Guards a number that Python computes from floats, or from ints of more than 64 bits: by Python's own
    functions."""
    program: list[Any] = []
    if postfix(t, size, program) is None:
        raise Skip(f"{size!r} is too long for a guard")
    program += [(0,), (SIGNS[sign], 2)]
    t.guards.outcome(condition(size, sign), tuple(program), True)


def _program(n: Int, origins: list[Origin]) -> list[tuple[Any, Any, Any]]:
    if not isinstance(n, Size):
        return [(OPS["const"], n, 0)]
    steps: list[tuple[Any, Any, Any]] = []
    for k, (monomial, factor) in enumerate(n.terms):
        steps.append((OPS["const"], factor, 0))
        for atom in monomial:
            if isinstance(atom, Symbol):
                origins.append(atom.source.origin)
                steps.append((OPS[atom.source.kind], atom.source.origin, atom.source.dim))
            else:
                assert isinstance(atom, Apply)
                steps += [
                    *_program(atom.args[0], origins),
                    *_program(atom.args[1], origins),
                    (OPS[atom.op], 0, 0),
                ]
            steps.append((OPS["mul"], 0, 0))
        if k:
            steps.append((OPS["add"], 0, 0))
    return steps


MIRRORED = {"==": "==", "!=": "!=", ">=": "<="}


def condition(size: Size, sign: str) -> str:
    """Returns the comparison of `size` with 0 in a readable form: negative terms are on the other side."""
    terms = dict(size.terms)
    constant = terms.pop((), 0)
    sides = [
        {m: abs(c) for m, c in terms.items() if (c < 0) == negative} for negative in (False, True)
    ]
    if not sides[0]:  # `5 - n >= 0` is `n <= 5`
        sides.reverse()
        constant, sign = -constant, MIRRORED[sign]
    to_the_right = constant < 0 or not sides[1]
    sides[to_the_right][()] = -constant if to_the_right else constant
    left, right = (size.shape_env.make(side) for side in sides)
    return f"{text(left)} {sign} {text(right)}"


def text(size: Int) -> str:
    """Returns the size as the user would write it."""
    shown = repr(size)
    if not isinstance(size, Size):
        return shown
    for symbol in sorted(set(atoms_of(size)), key=lambda s: -len(s.name)):
        shown = shown.replace(symbol.name, symbol.source.text())
    return shown
