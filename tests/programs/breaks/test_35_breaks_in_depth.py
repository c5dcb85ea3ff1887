"""Breaks in loops, with, try, and callees of any depth: each is one more graph, and everything is as it was.

PYTEST_DONT_REWRITE
"""

import contextlib
import os
import re
import time

import torch

from frameloom import disable, graph_break
from tests.programs.program import X, program


def leaf(x):
    y = x + 1
    print("leaf")
    return y * 2


def middle(x, scale=2):
    y = leaf(x * scale)
    return y - 1


def top(x):
    y = middle(x + 1, scale=3)
    return y / 2


@program(graphs=2, breaks="print")
def one_deep(x):
    return leaf(x) + 1


@program(graphs=2, breaks="print")
def three_deep(x):
    y = x * 2
    z = top(y)
    return z + y


@program(graphs=3, breaks="print print")
def twice_in_one_expression(x):
    return leaf(x) + leaf(x + 1)


@program(graphs=3, breaks="print print")
def in_an_argument_list(x):
    return torch.add(leaf(x), leaf(x), alpha=2)


class Model:
    def __init__(self):
        self.seen = []

    def step(self, x):
        self.seen.append("in")
        y = leaf(x)
        self.seen.append("out")
        return y

    def run(self, x, n):
        for i in range(n):
            x = self.step(x + i)
        return x


@program(graphs=2, breaks="print")
def in_a_method(x):
    m = Model()
    return m.step(x) + 1, m.seen


@program(graphs=1, breaks="print")
def in_a_property(x):
    class_free = WithProperty(x)
    return class_free.noisy + 1


class WithProperty:
    def __init__(self, x):
        self.x = x

    @property
    def noisy(self):
        print("property")
        return self.x * 2

    def __add__(self, other):
        print("add")
        return self.x + other

    def __getitem__(self, key):
        print("item", key)
        return self.x[key]

    def __call__(self, n):
        print("call")
        return self.x * n


@program(graphs=1, breaks="print")
def in_an_operator_method(x):
    w = WithProperty(x)
    return (w + 1) * 2


@program(graphs=1, breaks="print")
def in_getitem(x):
    w = WithProperty(x)
    return w[0] * 2


@program(graphs=1, breaks="print")
def in_call(x):
    w = WithProperty(x)
    return w(3) * 2


@program(graphs=2, breaks="print")
def in_try_body(x):
    y = x + 1
    try:
        y = leaf(y)
    except ValueError:
        y = y * 100
    else:
        y = y + 1
    finally:
        y = y - 1
    return y


@program(graphs=2, breaks="print")
def in_finally(x):
    y = x + 1
    try:
        y = y * 2
    finally:
        print("finally")
    return y + 1


@program(graphs=2, breaks="item")
def exception_behind_a_break_is_caught(x):
    try:
        y = x + 1
        n = round(y.max().item(), 3)
        if n > 0:
            raise ValueError(f"too big: {n}")
    except ValueError as error:
        return y * 2, str(error)


@contextlib.contextmanager
def block(log):
    log.append("enter")
    try:
        yield
    finally:
        log.append("exit")


@program(graphs=2, breaks="generator opaque_iterable print opaque_iterable")
def in_a_generator_context_manager(x):
    log = []
    with block(log):
        y = x + 1
        print("inside")
        y = y * 2
    return y, log


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        print("entering")
        return self

    def __exit__(self, *exc):
        self.log.append("exit")
        print("leaving")


@program(graphs=3, breaks="print print")
def in_enter_and_exit(x):
    log = []
    y = x + 1
    with Manager(log):
        y = y * 2
    return y + 1, log


@program(args=lambda: ([X, X + 1, X + 2],), graphs=3, breaks="print print")
def in_a_loop_over_tensors(items):
    total = torch.zeros(3, 4)
    for item in items:
        total = total + item
        print("added")
    return total * 2


@program(graphs=4, breaks="item item item")
def while_loop_on_data(x):
    n = 0
    while x.sum().item() < 50:
        x = x + 1
        n += 1
        if n > 2:
            break
    return x, n


@program(graphs=2, breaks="print")
def in_the_first_round_only(x):
    for i in range(3):
        if i == 0:
            x = x + 1
            print("first")
        x = x * 2
    return x


@program(graphs=2, breaks="print")
def with_an_iterator_alive(x):
    it = iter([1, 2, 3])
    y = x + next(it)
    print("between")
    return y * 2, it


@program(graphs=2, breaks="print")
def with_everything_alive(x):
    a, b = [1, {"k": (2, x)}], {3, 4}
    f = lambda t: t + a[0]
    s = slice(1, None)
    r = range(3)
    n, none, text, flag = 1.5, None, "text", True
    cls, fn, mod, dt = dict, len, torch, torch.float32
    y = f(x)
    print("alive")
    return f(y)[s], a, b, list(r), n, none, text, flag, cls(), fn(text), mod.sin(y), dt


@program(graphs=2, breaks="print")
def with_values_on_the_stack(x):
    return [x + 1, {"a": x * 2, "b": leaf(x)}, (x, 1)], f"{len('abc')}"


@program(graphs=2, breaks="print")
def in_a_default_or_a_chained_comparison(x):
    y = x + 1
    ok = 1 < len([print("compared"), 2]) < 3
    return y * 2 if ok else y


@program(graphs=2, breaks="print")
def in_a_conditional_expression(x):
    y = leaf(x) if x.ndim == 2 else x
    return y + 1


@program(graphs=3, breaks="print print")
def in_a_list_comprehension(x):
    return [leaf(x + i) for i in range(2)]


@program(graphs=0, breaks="print")
def in_a_generator_expression(x):
    return sum(leaf(x + i) for i in range(2))


@program(graphs=2, breaks="print")
def in_a_lambda_and_a_nested_function(x):
    scale = 3

    def inner(t):
        t = t * scale
        print("inner", scale)
        return t + scale

    return (lambda t: inner(t) - 1)(x)


@program(graphs=2, breaks="print")
def with_star_arguments(x):
    def callee(*args, k=1, **kwargs):
        y = args[0] + k
        print(len(args), sorted(kwargs))
        return y * len(kwargs)

    return callee(x, 2, k=3, a=1, b=2)


@program(graphs=2, breaks="graph_break")
def asked_for(x):
    y = x + 1
    graph_break()
    return y * 2


@disable
def disabled(x):
    return x * 2 + len(os.environ) * 0


@program(graphs=2, breaks="disabled")
def disabled_function(x):
    y = x + 1
    return disabled(y) - 1


@program()
def regular_expression(x):
    y = x + 1
    m = re.match(r"(\w+)-(\d+)", "layer-3")
    return y * int(m.group(2))


@program(graphs=3, breaks="unknown_call")
def time_is_asked(x):
    y = x + 1
    start = time.time()
    return y * 2, start > 0


@program(graphs=2, breaks="data_dependent_branch")
def branch_on_data(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y - 2


@program(graphs=2, breaks="data_dependent_branch")
def short_circuit_on_data(x):
    y = x + 1
    return (y * 2) if (y > 100).any() or y.ndim == 2 else y


@program()
def assertion_on_data(x):
    y = x + 1
    assert y.shape[0] == 3
    assert (y > -100).all(), "range"
    return y * 2


@program()
def import_in_the_function(x):
    y = x + 1
    import math

    return y * math.pi


@program(graphs=1)
def shape_from_data(x):
    n = int((x > 0).sum())
    return torch.zeros(n) + 1


@program(graphs=2, breaks="print")
def keyword_and_free_variables_survive(x, *, k=2, **rest):
    free = x * k

    def use():
        return free + 1

    print(sorted(rest))
    return use() * k, rest


@program(
    args=lambda: (torch.nn.Sequential(torch.nn.Linear(4, 4), Noisy(), torch.nn.Linear(4, 2)), X),
    graphs=2,
    breaks="print",
)
def in_a_submodule(net, x):
    return net(x)


class Noisy(torch.nn.Module):
    def forward(self, x):
        print("noisy", tuple(x.shape))
        return x.relu()


@program(graphs=1, breaks="exception")
def exception_from_a_callee_leaves(x):
    def thrower(t):
        t = t + 1
        if t.shape[0] == 3:
            raise IndexError("three rows")
        return t

    y = x * 2
    return thrower(y)


@program(graphs=1, breaks="print unbound")
def deleted_variables_stay_deleted(x):
    a = x + 1
    b = a * 2
    del a
    print("gone")
    try:
        return a
    except UnboundLocalError:
        return b * 2


@program(graphs=2, breaks="print")
def in_a_loop_over_the_values_of_a_dict(x):
    for name, n in {"a": 1, "b": 2, "c": 3}.items():
        x = x + n
        if name == "a":
            print(name)
    return x * 2


@program(graphs=2, breaks="print")
def iterator_used_on_both_sides(x):
    it, back = iter([1, 2, 3, 4]), reversed([5, 6, 7])
    y = x + next(it) + next(back)
    print("between")
    for n in it:
        y = y * n
    return y + next(back), list(it), list(back), next(it, "end")


@program(args=lambda: (X, iter({"a": X, "b": X + 1}.values()), iter(range(5)), iter((1, 2))))
def iterators_as_arguments(x, values, numbers, pair):
    next(numbers)
    for v in values:
        x = x + v
    a, b = pair
    return x * a + b, next(numbers)


@program(calls=[(X, iter([1, 2])), (X, iter([1, 2])), (X, iter([1, 2, 3]))], graphs=2)
def iterator_argument_is_guarded(x, it):
    return x + sum(it)


def standing_at(place):
    it = iter([1, 2, 3, 4, 5, 6])
    for _ in range(place):
        next(it)
    return X, it


@program(
    calls=[lambda k=k: standing_at(k) for k in range(5)],
    graphs=5,
    breaks="opaque_iterable",
)
def iterator_that_stands_elsewhere_in_each_call(x, it):
    y = x + 1
    return y * next(it)
