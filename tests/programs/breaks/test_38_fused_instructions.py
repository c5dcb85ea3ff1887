"""Breaks at steps that some CPython writes as one instruction and another as several: the truth of a comparison, two variables at once, calls with
keywords.

PYTEST_DONT_REWRITE
"""

import functools
import sys
import types

import torch

import frameloom
from tests.programs.program import X, program

LOG = []


class Answer:
    """Its truth is asked by the program, and seen in the log."""

    def __init__(self, yes):
        self.yes = yes

    def __bool__(self):
        LOG.append(self.yes)
        return self.yes

    def __lt__(self, other):
        LOG.append("lt")
        return self

    def __neg__(self):
        LOG.append("neg")
        return self


@program(graphs=2, breaks="data_dependent_branch", calls=[(X,), (-X,), (X,)])
def truth_of_a_comparison(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y - 2


@program(graphs=2, breaks="data_dependent_branch", calls=[(X,), (-X,)])
def truth_of_a_tensor_negated(x):
    y = x + 1
    z = not y.sum() > 0
    return y * 2, z


@program(graphs=5, breaks=" ".join(["data_dependent_branch"] * 4), calls=[(X,), (X * 0,), (-X,)])
def value_of_and_of_tensors(x):
    total = x.sum()
    last = total and x[0, 0] < 0 and x[0, 1]
    if last:
        x = x + last
    return x, last


@program(graphs=4, breaks="data_dependent_branch data_dependent_branch", calls=[(X,), (-X,)])
def truth_of_a_comparison_of_three(x):
    s = x.sum()
    if -1 < s < 100:
        return x * 2
    return x - s


@program(
    graphs=3,
    breaks="print print",
    calls=[(X, Answer(True)), (X, Answer(False))],
    before=LOG.clear,
    state=lambda: list(LOG),
)
def truth_of_an_object_around_a_break(x, a):
    y = x * 2 if a else x * 3
    print("between")
    if a < 1:
        y = y + 1
    z = not -a
    return y, z, a and 1, a or 2


@program(graphs=2, breaks="data_dependent_branch data_dependent_branch", calls=[(X,), (-X,)])
def while_a_tensor_says_so(x):
    n = 0
    while n < 3 and x.sum() > n - 1:
        n += 1
        x = x - 100
    return x, n


@program(graphs=2, breaks="print")
def more_variables_than_four_bits_number(x):
    a, b, c, d, e, f, g, h = 1, 2, 3, 4, 5, 6, 7, 8
    i, j, k, l, m, n, o, p, q, r = x, x + 1, 2, 3, 4, 5, 6, 7, 8, 9
    i, j = j, i
    print(a, b, c)
    q, r = r, q
    s, t = q + r, j * r
    i, j = j, i
    t, s = s, t
    return i - j + s, t, a + b + c + d + e + f + g + h + k + l + m + n + o + p, (q, r)


@program(graphs=2, breaks="print")
def pairs_of_variables_in_a_loop(x):
    a = b = c = d = e = f = g = h = i = j = k = l = m = n = 1
    for o, p in ((1, x), (2, x + 1)):
        q, r = o, p
        x = x * q + r
        if q == 1:
            print("one")
        q, r = r, q
    return x, q, r, a + b + c + d + e + f + g + h + i + j + k + l + m + n


@program(graphs=2, breaks="print")
def call_with_keywords(x):
    y = x + 1
    print("a", "b", sep=str(y.shape[0]), end="!")
    return y * 2


def printing(y, *, end, times=2):
    print("in", end=end)
    return y * times


@program(graphs=2, breaks="print")
def break_inside_a_call_with_keywords(x):
    y = printing(x + 1, times=3, end="?")
    return printing(y, end="!") if x.ndim == 1 else y + 1


@program(graphs=2, breaks="graph_break")
def cells_among_the_variables(x):
    a, b = x + 1, 2

    def inner(k):
        nonlocal b
        b += k
        return a * b

    first, second = inner(1), inner(2)
    frameloom.graph_break()
    a, b = b, a
    return first + second, a, b


class Base:
    def scale(self, x, *, by=2):
        print("base")
        return x * by


class Derived(Base):
    def scale(self, x, *, by=2):
        y = super().scale(x, by=by)
        method = super
        z = method().scale(y + 1, by=by)
        return y + z


@program(graphs=3, breaks="print print")
def super_around_breaks(x):
    return Derived().scale(x + 1, by=3)


def closed(x):
    try:
        yield x
        yield x + 1
    except GeneratorExit:
        return "closed"


@program()
def what_close_of_a_generator_gives(x):
    it = closed(x * 2)
    first = next(it)
    started, unstarted = it.close(), closed(x).close()
    return first, started, unstarted, it.close()


@program()
def exception_being_handled(x):
    log = []
    try:
        raise ValueError("now")
    except ValueError as error:
        log += [sys.exception() is error, sys.exception().args]
        try:
            raise KeyError(1) from error
        except KeyError as inner:
            log.append(sys.exception() is inner)
        log.append(sys.exception() is error)
    return x + 1, log, sys.exception()


SCALED = functools.partial(torch.mul, other=3)


class WithPartial:
    scaled = SCALED


class WithOther:
    scaled = functools.partial(torch.mul, other=4)


@program(graphs=2, calls=[(X, cls) for cls in (WithPartial, WithOther, WithPartial)])
def partial_read_from_a_class(x, cls):
    return cls.scaled(x), cls.scaled is SCALED, cls.scaled.keywords


class Named:
    def own(self):
        return self


@program(breaks="attribute unknown_call" if "__get__" in vars(types.MethodType) else "")
def bound_method_bound_again(x):
    one, other = Named(), Named()
    method = one.own.__get__(other, Named)
    return x + 1, method() is one, method() is other
