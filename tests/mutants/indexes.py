"""Index algebra: wrong positions, or ranges that are too narrow."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "range_below_a_limit",
        "ir/index.py",
        "Op.LE: (True, 1)",
        "Op.LE: (True, 0)",
        "where `i <= n` is known, i is taken to be below n: the last position is wrapped wrongly",
    ),
    Mutant(
        "carry_of_the_low_part",
        "ir/index.py",
        "_divide(sum_of(high, high_constant + k), c // g, ranges)",
        "_divide(sum_of(high, high_constant), c // g, ranges)",
        "dividing `4*i + j - 1` forgets the carry of the low digits: views of slices read the wrong row",
    ),
    Mutant(
        "remainder_of_a_divisor",
        "ir/index.py",
        "t.srcs[1].arg % c == 0\n",
        "c % t.srcs[1].arg == 0\n",
        "`(x % 4) % 8` becomes `x % 8`",
    ),
    Mutant(
        "offset_of_the_store",
        "ir/index.py",
        "    rest = add(offset, index(-constant))\n",
        "    rest = offset\n",
        "what a slice was given is read at the place that it has in the whole",
    ),
    Mutant(
        "overlapping_strides",
        "ir/index.py",
        "        if step < reach:",
        "        if step < reach - 1:",
        "as_strided with strides (2, 1) and 3 columns is taken for a layout without overlap",
    ),
    Mutant(
        "narrow_integers_that_wrap",
        "ir/index.py",
        "return interval if _fits(interval, width) else _width(n.dtype)",
        "return interval",
        "a sum of uint8 is taken to be up to 510, so that checks and wraps of indices made of it are wrong",
    ),
]
