"""Higher-order functions of PyTorch: map, associative_scan, nested_compile_region; and operator.call.

PYTEST_DONT_REWRITE
"""

import operator

import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows

from tests.programs.program import X, program


@torch.compiler.nested_compile_region
def region(x, y):
    return (x + y).sin()


@program()
def compiled_region(x):
    return region(x, 2) + region(x, y=3)


@program()
def called_by_operator(x):
    return operator.call(torch.add, x, 1, alpha=2), operator.call(region, x, 1)


@program()
def rows(x):
    scale = x[0] * 2
    return map_rows(lambda row, other: row.sin() * scale + other, x, torch.ones(4))


@program()
def rows_of_trees(x):
    def body(row):
        return {"sum": row["a"] + row["b"], "parts": (row["a"] * 2, torch.rand(2))}

    made = map_rows(body, {"a": x, "b": x + 1})
    return made["sum"], made["parts"]


@program(breaks="library_call")
def rows_returned_as_they_are(x):
    y = x + 1
    try:
        return map_rows(lambda row: row, y)
    except Exception as error:
        return y, type(error).__name__


@program(breaks="library_call", state=lambda: SEEN.clear())
def rows_with_effects(x):
    y = x + 1
    try:
        return map_rows(lambda row: SEEN.append(1) or row + 1, y)
    except Exception as error:
        return y, type(error).__name__


SEEN = []


@program(breaks="library_call")
def rows_that_are_written(x):
    y = x + 1
    try:
        return map_rows(lambda row: row.add_(1) * 2, y)
    except Exception as error:
        return y, type(error).__name__


@program()
def associative(x):
    return associative_scan(torch.add, x, 0, combine_mode="generic")


@program()
def associative_only_on_gpus(x):
    try:
        return associative_scan(torch.add, x, 0)
    except ValueError as error:
        return x + 1, str(error)


@program(breaks="library_call")
def rows_of_other_numbers(x):
    y = x + 1
    try:
        return map_rows(lambda pair: pair[0] + pair[1], (y, y[:2]))
    except RuntimeError as error:
        return y, str(error)[:40]
