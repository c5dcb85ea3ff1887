"""Comparisons of sizes.

If the form does not decide one, the hint does, and the answer becomes a condition of the code.
"""

from __future__ import annotations

from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.expr import Int, Size, largest, shape_env_of, smallest

OPEN_END = 1 << 62  # a slice whose end is greater goes to the end


def same(a: Int, b: Int) -> bool:
    """Whether they are surely equal."""
    shape_env = shape_env_of(a, b)
    return bool(a == b) if shape_env is None else shape_env.surely_zero(a - b)


def surely_positive(n: Int) -> bool:
    return n.shape_env.surely_positive(n) if isinstance(n, Size) else n > 0


def less(a: Int, b: Int) -> bool:
    """Whether `a < b` for sure."""
    return surely_positive(b - a)


def at_most(a: Int, b: Int) -> bool:
    """Whether `a <= b` for sure."""
    return surely_positive(b - a + 1)


def equal(a: Int, b: Int) -> bool:
    """Whether they are equal, where everything else is an error: for unbacked sizes this is assumed and
    checked."""
    n = a - b
    return n.shape_env.expect_0(n) if unbacked_in(n) else bool(n == 0)


def fits(a: Int, b: Int) -> bool:
    """Whether `a <= b`, where this is usual: for unbacked sizes it is assumed and checked."""
    n = b - a
    return n.shape_env.expect_at_least_0(n) if unbacked_in(n) else bool(n >= 0)


def require(holds: bool, what: str) -> None:
    """Asserts a condition on sizes.  A comparison of sizes can add a condition to the code, so it must not
    stand in an `assert`, which `python -O` leaves out."""
    if not holds:
        raise AssertionError(what)


def divides(a: Int, n: Int) -> bool:
    """Whether `n` is a multiple of `a` for sure."""
    return same(n % a, 0)


def bounds(start: Int | None, end: Int | None, n: Int) -> tuple[Int, Int]:
    """Returns where the slice `start:end` of `n` elements begins and ends."""
    first = _clamped(0 if start is None else start, 0, n)
    if end is None or (isinstance(end, int) and end > OPEN_END):
        return first, n
    last = _clamped(end, first, n)
    return first, first if at_most(last, first) else last


def _clamped(position: Int, low: Int, high: Int) -> Int:
    if not fits(0, position) if unbacked_in(position) else position < 0:
        position = position + high
    if unbacked_in(position) and fits(low, position) and fits(position, high):
        return position
    if isinstance(position, Size) and isinstance(high, int) and position <= high:
        return largest(position, low)  # the usual case: a condition is simpler than a minimum
    return smallest(largest(position, low), high)
