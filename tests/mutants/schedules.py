"""Schedules and the code that is written for them, C++ and Triton."""

from tests.mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "argmax_of_nan",
        "codegen/cpp/fold.py",
        'better = f"({x} {sign} {b}) | (({x} != {x}) & ({b} == {b}))"',
        'better = f"({x} {sign} {b})"',
        "argmax passes over NaN",
    ),
    Mutant(
        "one_lane_too_many",
        "codegen/cpp/fold.py",
        '< splat<{mask}>((i{bits}){count}))"',
        '<= splat<{mask}>((i{bits}){count}))"',
        "where rows vary in length, a fold takes one element behind the row with it",
    ),
    Mutant(
        "identity_of_bool_extremes",
        "ir/reductions.py",
        "return op is Op.AND",
        'return op is Op.AND and kind != "min"',
        "the minimum of bools begins with False",
    ),
    Mutant(
        "rows_behind_the_last_cut",
        "codegen/cpp/accumulator_strips.py",
        "whole = a.extent % ROWS == 0 and cut % ROWS == 0",
        "whole = cut % ROWS == 0",
        "a sum of columns leaves out the last rows where their number is no multiple of 4",
    ),
    Mutant(
        "digits_in_the_wrong_order",
        "codegen/schedule/split_axes.py",
        "axes = tuple(x for b in n.arg.axes for x in ((high, low) if b == a else (b,)))",
        "axes = tuple(x for b in n.arg.axes for x in ((low, high) if b == a else (b,)))",
        "argmax over an axis that is cut into digits counts the low ones first",
    ),
    Mutant(
        "triton_maximum_without_nan",
        "codegen/triton/ops.py",
        '"_max": "def _max(a, b):\\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)"',
        '"_max": "def _max(a, b):\\n    return tl.maximum(a, b)"',
        "the maximum of a row with NaN is the greatest number on the GPU",
    ),
    Mutant(
        "ends_of_shifted_rows",
        "codegen/triton/function.py",
        "low, last = d.block, d.extent + self.aligned.width - 1",
        "low, last = d.block, d.extent",
        "rows that start anywhere are read from an aligned place on, but not to their end, on the GPU",
    ),
    Mutant(
        "remainder_of_negative_divisors",
        "codegen/triton/ops.py",
        "return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)",
        "return tl.where(r < 0, r + b, r)",
        "`x % -3` of ints is less than -3 on the GPU",
    ),
]
