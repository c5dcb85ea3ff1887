"""Dynamic sizes in generated texts: their names, and whether their values fit into 32 bits."""

from __future__ import annotations

import re

from frameloom.ir.dtype import DType
from frameloom.ir.index import bounds
from frameloom.ir.node import Node
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.compare import at_most
from frameloom.ir.symbolic.expr import Int, Size, hint_of, size_called

SIZE = "size_"
_NAMES = re.compile(r"\bz\d+\b")  # how a Size looks in a text


MOST = (1 << 31) - 1  # largest 32-bit integer
SPARE = 1 << 20


def named(body: str) -> tuple[str, tuple[Size, ...]]:
    """Returns the text with sizes renamed by order of appearance, so that the same code is the same text; and
    the sizes."""
    names: dict[str, str] = {}
    text = _NAMES.sub(lambda m: names.setdefault(m[0], f"{SIZE}{len(names)}"), body)
    return text, tuple(map(size_called, names))


def fits_i32(n: Int) -> bool:
    return narrow((n, n))


def count_dtype(n: Int) -> DType:
    """Returns the integer type for numbers up to `n`."""
    return DType.I32 if fits_i32(n) else DType.I64


def narrow(range_: tuple[Int, Int]) -> bool:
    """Whether all values of the range fit into 32 bits. If only the values of the captured call show that,
    this adds a guard. The guard is stronger than needed, so that one guard serves for all offsets that are
    nearly as large."""
    low, high = range_
    if not isinstance(low, Size) and not isinstance(high, Size):
        return low >= -MOST - 1 and high <= MOST
    if at_most(-MOST - 1, low) and at_most(high, MOST):
        return True
    if unbacked_in(low) or unbacked_in(high):
        return False
    high, low = _simpler(high), -_simpler(-low)
    if max(hint_of(high), -hint_of(low)) > MOST - SPARE:
        return False
    return bool(high <= MOST - SPARE) and bool(low >= SPARE - MOST)


def index_fits_i32(n: Node) -> bool:
    """Like `narrow`, for an index, at all positions of its axes."""
    known = bounds(n)
    return known is not None and narrow(known)


def _simpler(n: Int) -> Int:
    """Returns a simpler bound, at least `n - SPARE`: without subtracted terms and without a small
    constant."""
    if not isinstance(n, Size):
        return n
    shape_env = n.shape_env
    if any(shape_env.range_of(shape_env.make({m: 1}))[0] < 0 for m, _ in n.terms if m):
        return n
    positive_terms = {m: c for m, c in n.terms if m and c > 0}
    return shape_env.make(positive_terms) + max(dict(n.terms).get((), 0) - SPARE, 0)
