"""functools: partial, wraps, reduce, cached_property, caches, singledispatch, total_ordering, cmp_to_key.

PYTEST_DONT_REWRITE
"""

import functools
import operator
from functools import (
    cached_property,
    lru_cache,
    partial,
    partialmethod,
    reduce,
    singledispatch,
    total_ordering,
    wraps,
)

import torch

from tests.programs.program import X, program


@program()
def partial_calls(x):
    add = partial(torch.add, x, alpha=2)
    scale = partial(lambda a, b=1, *, c=0: a * b + c, b=3)
    return (
        add(x),
        scale(x),
        scale(x, c=1),
        add.func is torch.add,
        scale.keywords,
        add.args[0] is x,
        partial(scale, x)(),
    )


@program(args=lambda: (X, partial(torch.clamp, min=0)))
def partial_argument(x, act):
    return act(x) + act(x, max=1)


def doubled(fn):
    @wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) * 2

    return wrapper


@doubled
def decorated(x):
    """Its text."""
    return x + 1


@program()
def wrapped_function(x):
    return decorated(x), decorated.__name__, decorated.__doc__, decorated.__wrapped__(x)


@program()
def wraps_made_in_the_frame(x):
    @doubled
    def inner(y):
        return y - 1

    return inner(x), inner.__name__


def with_options(scale=1):
    def decorate(fn):
        @wraps(fn)
        def run(x):
            return fn(x) * scale

        run.scale = scale
        return run

    return decorate


@with_options(scale=3)
def optioned(x):
    return x + 1


@program()
def decorator_with_options(x):
    return optioned(x), optioned.scale


@program()
def reduce_calls(x):
    return (
        reduce(torch.add, [x, x, x]),
        reduce(lambda a, b: a * b, range(1, 5)),
        reduce(operator.mul, x.shape, 1),
        reduce(lambda a, b: a + b, [], 7),
    )


class Shape:
    def __init__(self, t):
        self.t = t
        self.computed = 0

    @cached_property
    def double(self):
        self.computed += 1
        return self.t * 2


@program()
def cached_property_is_computed_once(x):
    s = Shape(x)
    return s.double + s.double, s.computed, s.double is s.double, s


@program(args=lambda: (Shape(X),))
def cached_property_of_an_argument(s):
    return s.double + 1, s.computed


@lru_cache(maxsize=None)
def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


@functools.cache
def table(n):
    return tuple(range(n))


@program()
def cached_function(x):
    return x * factorial(5), table(3), factorial(5)


@program(graphs=2, before=lambda: (factorial.cache_clear(), table.cache_clear()))
def cached_function_whose_cache_is_cleared(x):
    """It runs again, at each call."""
    return x * factorial(5), table(3), factorial(5)


SEEN = [1.0]


@functools.lru_cache(maxsize=0)
def never_remembered():
    SEEN.append(1.0)
    return len(SEEN)


@program(breaks="unknown_call", before=lambda: SEEN.clear(), state=lambda: SEEN)
def cache_of_no_size(x):
    return x + never_remembered()


@functools.lru_cache(None)
def first_seen(k):
    return SEEN[0] * k


def _cold():
    SEEN[:] = [2.0]
    first_seen.cache_clear()


@program(graphs=2, breaks="cold_cache", before=_cold, state=lambda: SEEN)
def cached_function_sees_what_was_written_before(x):
    y = x + 1
    SEEN[0] = 5.0
    return y * first_seen(3)


@functools.lru_cache
def refuses(k):
    if SEEN[0] == 2.0:
        raise ValueError(k)
    return SEEN[0]


@program(breaks="unknown_call", before=_cold)
def cached_function_that_raises(x):
    y = x + 1
    try:
        return y * refuses(1)
    except ValueError as error:
        return y, str(error)


@functools.lru_cache(maxsize=1)
def small(k):
    return k + 1


@program(graphs=2, breaks="cold_cache cold_cache", before=small.cache_clear)
def cache_that_is_full(x):
    return x + 1, small(3), small(4)


@functools.lru_cache(typed=True)
def kind_of(*args, **kwargs):
    return f"{args} {kwargs}"


@program()
def keys_of_a_typed_cache(x):
    return x + 1, kind_of(1), kind_of(1.0), kind_of(True), kind_of("a", k=1), kind_of(k=1, m=2)


class Reporter:
    def __init__(self):
        self.level = 2

    def note(self, text, more=""):
        SEEN.append(f"{text} {self.level}{more}")

    @lru_cache(None)
    def note_once(self, *args, **kwargs):
        self.note(*args, **kwargs)


REPORTER = Reporter()


def _forget():
    SEEN[:] = [1.0]
    Reporter.note_once.cache_clear()


@program(before=_forget, state=lambda: SEEN, graphs=2)
def method_that_does_something_once(x):
    y = x + 1
    REPORTER.note_once("seen", more="!")
    once = REPORTER.note_once
    once("seen again")
    return y * 2, once.__self__ is REPORTER, type(once)


@program(before=_forget, state=lambda: SEEN, graphs=2, breaks="unknown_call")
def cached_method_of_a_new_object(x):
    y = x + 1
    Reporter().note_once("new")
    return y * 2


@singledispatch
def describe(v):
    return "object"


@describe.register
def _(v: int):
    return "int"


@describe.register(list)
def _(v):
    return "list"


@program()
def single_dispatch(x):
    return x + 1, describe(1), describe([]), describe("s"), describe(True)


@total_ordering
class Rank:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n

    def __hash__(self):
        return hash(self.n)


@program()
def total_order(x):
    a, b = Rank(1), Rank(2)
    return x + a.n, a < b, a >= b, a <= b, b > a, max([a, b]).n, sorted([b, a])[0] is a, a != b


@program()
def compare_function_as_key(x):
    return x + 1, sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


class Cell:
    def set_state(self, state):
        self.state = state
        return self

    alive = partialmethod(set_state, True)


@program()
def partial_method(x):
    c = Cell()
    c.alive()
    return x + c.state, c


@program()
def composed_functions(x):
    def compose(*fns):
        return reduce(lambda f, g: lambda v: g(f(v)), fns)

    pipeline = compose(torch.relu, lambda t: t + 1, partial(torch.mul, other=2))
    return pipeline(x), [f(x) for f in (torch.sin, torch.cos)]
