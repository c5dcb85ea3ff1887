"""Higher-order functions of PyTorch: map, associative_scan, nested_compile_region; and operator.call.

PYTEST_DONT_REWRITE
"""

import operator

import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

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


@program(calls=[(X,), (X[:1],), (X[:2],), (torch.arange(40.0).reshape(10, 4) / 40,)], graphs=4)
def not_associative(x):
    keep = lambda a, b: {"u": a["u"] - b["u"], "v": (a["v"][0] * 0.5 + b["v"][0] * a["u"],)}  # noqa: E731
    given = {"u": x, "v": (x.cos(),)}
    return [associative_scan(keep, given, 0, r, "generic") for r in (False, True)]


SCANNED = []


@program(state=lambda: SCANNED[:])
def scan_that_counts_its_calls(x):
    def add(a, b):
        SCANNED.append(1)
        return a + b

    return associative_scan(add, x, 1, combine_mode="generic"), SCANNED.clear()


@program()
def items_of_lists(x):
    pairs = [x, x + 1, x[:2]], [x.sin(), 2.0, x[2]]
    made = foreach_map(lambda a, b, c: (a * b + c).cos(), *pairs, 3)
    return type(made), made, foreach_map(torch.add, x, x)


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


# --- scan

W = torch.linspace(-1, 1, 16).reshape(4, 4)


@program()
def running_sums(x):
    return scan(lambda total, row: (total + row, total * row), torch.zeros(4), x)


@program()
def from_the_end(x):
    return scan(lambda total, row: (total + row, total * row), torch.zeros(4), x, reverse=True)


@program()
def along_another_dimension(x):
    def body(state, column):
        return state * 0.5 + column, ((state * column).sin(), column.sum())

    one = scan(body, torch.zeros(3), x, dim=1)
    return one, scan(body, init=torch.ones(3), xs=x, dim=-1, reverse=True)


@program()
def recurrent_cell(x):
    def body(state, row):
        h = (state["h"] @ W + row[0]).tanh()
        return {"h": h, "n": state["n"] + 1}, [h * row[1]]

    state = {"h": torch.zeros(4), "n": torch.tensor(0)}
    return scan(body, state, (x, x * 2))


@program(breaks="library_call")
def state_returned_twice(x):
    y = x + 1
    try:
        return scan(lambda total, row: (total + row, total), torch.zeros(4), y)
    except Exception as error:
        return y, type(error).__name__


@program(breaks="library_call")
def state_of_another_form(x):
    y = x + 1
    try:
        return scan(lambda total, row: ((total + row).double(), row * 2), torch.zeros(4), y)
    except Exception as error:
        return y, type(error).__name__


@program(breaks="library_call", state=lambda: SEEN.clear())
def steps_with_effects(x):
    y = x + 1
    try:
        return scan(lambda total, row: SEEN.append(1) or (total + row, row * 2), torch.zeros(4), y)
    except Exception as error:
        return y, type(error).__name__


@program(breaks="library_call")
def steps_that_write(x):
    y = x + 1
    try:
        return scan(lambda total, row: (total + row.mul_(2), row * 2), torch.zeros(4), y)
    except Exception as error:
        return y, type(error).__name__


@program()
def nothing_to_scan(x):
    return scan(lambda total, row: (total, row), x + 1, [])


@program(calls=[(X, 1), (X[:2], 1), (X, 2)], graphs=3)
def lengths_and_numbers_that_vary(x, by):
    return scan(lambda total, row: (total + row * by, total * 2), torch.zeros(4), x)


# --- gradients


def of_scan(x):
    def body(state, row):
        h = (state * x[0] + row).tanh()
        return h, h * 2

    state, rows = scan(body, torch.ones(4), x, reverse=True)
    return state.sum() + (rows * x).sum()


def of_map(x):
    other = x[0] * 2
    return (map_rows(lambda row: (row * other).sin(), x + 1) * x).sum()


def of_associative_scan(x):
    return (associative_scan(torch.mul, x, 0, combine_mode="generic") * x).sum()


def of_while_loop(x):
    body = lambda i, y: (i + 1, y * x.cos())  # noqa: E731
    return while_loop(lambda i, y: i < 3, body, (torch.tensor(0), x))[1].sum()


GRADIENTS = [of_scan, of_map, of_associative_scan, of_while_loop]


def table():
    return (X / 7).requires_grad_()
