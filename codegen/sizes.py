"""Sizes that vary in generated texts: what they are called, and whether 32 bits have room for them."""

from __future__ import annotations

import re

from frameloom.ir.dtype import DType
from frameloom.ir.index import bounds
from frameloom.ir.node import Node
from frameloom.ir.symbolic.atoms import unbacked_in
from frameloom.ir.symbolic.compare import at_most
from frameloom.ir.symbolic.expr import Int, Size, hint_of, size_called

SIZE = "size_"
_NAMES = re.compile(r"\bz\d+\b")  # what a Size is in a text


MOST = (1 << 31) - 1  # of 32 bits
SPARE = 1 << 20


def named(body: str) -> tuple[str, tuple[Size, ...]]:
    """The text with other names for sizes, by the order in which it meets them, so that the same code is the same text; and the sizes."""
    found: dict[str, str] = {}
    text = _NAMES.sub(lambda m: found.setdefault(m[0], f"{SIZE}{len(found)}"), body)
    return text, tuple(map(size_called, found))


def fits_i32(n: Int) -> bool:
    return narrow((n, n))


def count_dtype(n: Int) -> DType:
    """Of numbers up to `n`."""
    return DType.I32 if fits_i32(n) else DType.I64


def narrow(range_: tuple[Int, Int]) -> bool:
    """Whether 32 bits have room for all in the range.  Where they have for the captured call's, that becomes a condition: a stronger one than is
    needed, so that one serves for all the offsets that are nearly as large."""
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
    """... for an index, wherever its axes are."""
    known = bounds(n)
    return known is not None and narrow(known)


def _simpler(n: Int) -> Int:
    """At least `n`: without what is subtracted, and without what is small."""
    if not isinstance(n, Size):
        return n
    shape_env = n.shape_env
    if any(shape_env.range_of(shape_env.make({m: 1}))[0] < 0 for m, _ in n.terms if m):
        return n
    kept = {m: c for m, c in n.terms if m and c > 0}
    return shape_env.make(kept) + max(dict(n.terms).get((), 0) - SPARE, 0)
