"""Breaks: the program prints and answers what it does plainly, and every piece between breaks is one graph.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import re

import pytest
import torch

from frameloom import graph_break
from tests.helpers import check

X = torch.arange(6.0).reshape(2, 3) - 2


def print_between(x):
    y = x + 1
    print("sum", y.sum().item() > 0)
    return y * 2


def print_first(x):
    print("start")
    return x * 2 + 1


def print_last(x):
    y = x * 2
    print("done")
    return y


def print_twice(x):
    y = x + 1
    print("a")
    y = y * 3
    print("b")
    return y - 1


def if_on_tensor(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def if_else_join(x):
    y = x * 2
    if (y > 100).any():
        z = y + 1
    else:
        z = y - 1
    return z * 3


def while_on_tensor(x):
    while x.sum() < 50:
        x = x * 2 + 1
    return x - 1


def item_as_number(x):
    n = int((x > 0).sum().item())
    return x[:, :1] * n


def tolist_of_tensor(x):
    values = x[0].tolist()
    return x + values[1]


def unknown_c_function(x):
    y = x + 1
    m = re.match(r"(\d+)-(\d+)", "12-34")
    return y * int(m.group(1))


def break_in_loop(x):
    total = torch.zeros(())
    for i in range(3):
        x = x + i
        print("round", i)
        total = total + x.sum()
    return total


def item_in_loop(x):
    out = []
    for row in x:
        out.append(row.sum().item() * 2)
    return out, x + len(out)


def noisy(y):
    y = y * 2
    print("inner")
    return y + 1


def break_in_callee(x):
    y = noisy(x + 1)
    return y * 3


def middle(x):
    z = noisy(x - 1)
    return z / 2


def break_two_deep(x):
    y = middle(x * 2)
    return y + x


def break_in_callee_in_loop(x):
    for _ in range(2):
        x = noisy(x)
    return x


def break_in_expression(x):
    return x * 2 + noisy(x) * 3 - noisy(x + 1)


def break_in_comprehension(x):
    return [noisy(x + i) for i in range(2)]


def break_in_with(x):
    with torch.no_grad():
        y = x * 2
        print("in with", torch.is_grad_enabled())
        y = y + 1
    return y


def break_in_try(x):
    try:
        y = x * 2
        print("in try")
        return y + 1
    finally:
        print("finally")


def exception_caught_by_user(x):
    y = x + 1
    try:
        raise ValueError("mine")
    except ValueError as e:
        print("caught", e)
        y = y * 2
    return y


def exception_in_callee(x):
    def thrower(z):
        z = z + 1
        raise KeyError("k")

    try:
        thrower(x)
    except KeyError:
        x = x * 5
    return x + 1


def user_exception_leaves(x):
    y = x + 1
    if y.sum() > -1e9:
        raise RuntimeError("too big")
    return y


def library_error_leaves(x):
    y = x + 1
    return y @ torch.ones(7, 7)


def assert_on_tensor(x):
    y = x + 1
    assert (y > -100).all(), "small"
    return y * 2


def explicit_break(x):
    x = x + 1
    graph_break()
    return x * 2


def break_with_many_locals(x):
    a, b, c, *rest = 1, "two", [x, 3.0], 4, {5: x}
    d = {"k": c}
    y = x + a
    print(b, len(c), rest[0])
    d["k"].append(y)
    return y * c[1], d, rest


def identity_is_kept(x):
    first = [x]
    second = first
    print("now")
    second.append(x + 1)
    return first, second, first is second


def closure_over_break(x):
    n = 1

    def add(y):
        nonlocal n
        n += 1
        return y + n

    y = add(x)
    print(n)
    return add(y), n


def generator_break(x):
    def gen():
        for i in range(3):
            print("yield", i)
            yield x + i

    return sum(t.sum() for t in gen())


def print_tensor(x):
    y = x * 2
    print(y)
    return y + 1


def format_tensor(x):
    s = f"{(x * 2).sum():.2f}"
    return x + len(s)


def builtin_on_tensor(x):
    return x * float(x.sum()) + int(x.max()), bool(x.any())


def key_function(x):
    rows = sorted([x[0], x[1]], key=lambda r: -r.sum().item())
    return rows[0] * 2


PROGRAMS = [  # program, graphs, breaks (None: any number)
    (print_between, None, None), (print_first, 1, 1), (print_last, 1, 1), (print_twice, 3, 2), (if_on_tensor, 2, 1),
    (if_else_join, 2, 1), (while_on_tensor, None, None), (item_as_number, 2, 1), (tolist_of_tensor, None, None),
    (unknown_c_function, None, None), (break_in_loop, None, None), (item_in_loop, None, None), (break_in_callee, 2, 1),
    (break_two_deep, 2, 1), (break_in_callee_in_loop, None, None), (break_in_expression, 3, 2),
    (break_in_comprehension, None, None), (break_in_with, 2, None), (break_in_try, 2, None),
    (exception_caught_by_user, None, None), (exception_in_callee, None, None), (user_exception_leaves, None, None),
    (library_error_leaves, None, None), (assert_on_tensor, 1, 0), (explicit_break, 2, 1),
    (break_with_many_locals, 2, 1), (identity_is_kept, 1, 1), (closure_over_break, 2, 1), (generator_break, None, None),
    (print_tensor, 2, 1), (format_tensor, None, None), (builtin_on_tensor, None, None), (key_function, None, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "graphs", "breaks"), PROGRAMS, ids=lambda p: getattr(p, "__name__", "")
)
def test_program(program, graphs, breaks):
    check(program, X, graphs=graphs, breaks=breaks, calls=3)
