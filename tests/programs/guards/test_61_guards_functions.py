"""Changes of functions, closures, globals and builtins are noticed.

PYTEST_DONT_REWRITE
"""

import builtins
import functools
import inspect
import math
import sys
import types

import torch
import torch.nn.functional as F

from tests.programs.changing import SAME, changes

FACTOR = 2.0
UNUSED = 1


def scale(x):
    return x * FACTOR


@changes
def defaults_and_code():
    def g(x, k=2.0, *, m=3.0):
        return x * k + m

    yield lambda x: g(x)
    g.__defaults__ = (5.0,)
    yield
    g.__kwdefaults__ = {"m": 7.0}
    yield
    g.__kwdefaults__["m"] = 8.0
    yield
    g.__code__ = (lambda x, k=2.0, *, m=3.0: x - k).__code__
    yield


@changes
def code_of_a_global_function():
    old = scale.__code__
    yield lambda x: scale(x)
    scale.__code__ = (lambda x: x + 1).__code__
    yield
    scale.__code__ = old
    yield SAME


@changes
def cache_of_a_function():
    told = [2.0]

    @functools.cache
    def unbounded(k):
        return told[0] * k

    @functools.lru_cache(maxsize=2)
    def bounded(k, *, m=1):
        return told[0] * k + m

    yield lambda x: x * unbounded(3) + bounded(3, m=2) * bounded(4)
    told[0] = 3.0
    yield SAME
    unbounded.cache_clear()
    yield
    bounded.cache_clear()
    yield


@changes
def entry_of_a_bounded_cache():
    """CPython takes the entry for other arguments and back."""
    told = [2.0]

    @functools.lru_cache(maxsize=1)
    def f(k):
        return told[0] * k

    yield lambda x: x * f(3)
    told[0] = 4.0
    yield SAME
    f(5)
    f(3)
    yield
    f.cache_clear()
    yield


@changes
def cache_that_others_fill():
    @functools.lru_cache
    def f(*args, **kwargs):
        return len(args) + len(kwargs)

    yield lambda x: x * f(1, "a", k=2) + f("b")
    for k in range(50):
        f(k)
    yield SAME
    for k in range(50, 200):
        f(k)
    yield


@changes
def a_longer_tuple_of_defaults():
    def g(x, a=1.0, b=1.0):
        return x * a + b

    yield lambda x: g(x, a=3.0)
    g.__defaults__ = (1.0, 2.0)
    yield
    g.__defaults__ = (2.0,)
    yield


@changes
def own_defaults():
    def program(x, k=2.0, *, m=1.0):
        return x * k + m

    yield program
    program.__defaults__ = (4.0,)
    yield
    program.__kwdefaults__["m"] = 5.0
    yield


@changes
def closure_of_the_program_and_of_a_callee():
    n, unused = 2.0, [1]
    callee = lambda x: x + n

    def program(x):
        return callee(x) * n if unused is not None else x

    yield program
    n = 3.0
    yield
    unused.append(1)
    yield SAME
    callee = scale
    yield


@changes
def another_function_of_the_same_code():
    def make(k):
        return lambda x: x * k

    table = [make(2.0)]
    yield lambda x: table[0](x)
    table[0] = make(2.0)
    yield SAME
    table[0] = make(3.0)
    yield


@changes
def globals_of_a_callee():
    global FACTOR, UNUSED
    yield lambda x: scale(x) * 2
    FACTOR = 4.0
    yield
    UNUSED = 2
    yield SAME
    FACTOR = 2.0
    yield SAME


@changes
def attribute_of_a_function():
    def g(x):
        return x * getattr(g, "k", 1.0) * getattr(g, "m", 1.0)

    g.k = 2.0
    yield lambda x: g(x)
    g.k = 3.0
    yield
    g.m = 4.0
    yield


@changes
def builtin_shadowed_and_replaced():
    yield lambda x: x * abs(-3.0)
    globals()["abs"] = lambda value: 7.0
    yield
    del globals()["abs"]
    yield
    old = builtins.abs
    builtins.abs = lambda value: 11.0
    yield
    builtins.abs = old


@changes
def function_of_a_module_replaced():
    root, relu, sin = math.sqrt, F.relu, torch.sin
    yield lambda x: F.relu(torch.sin(x)) * math.sqrt(4.0)
    math.sqrt = lambda value: 5.0
    yield
    F.relu = lambda value: value * 2
    yield
    torch.sin = torch.cos
    yield
    math.sqrt, F.relu, torch.sin = root, relu, sin


@changes
def partial():
    bound = functools.partial(lambda x, k, m: x * k + m, k=2.0, m=1.0)
    yield lambda x: bound(x)
    bound.keywords["k"] = 3.0
    yield


@changes
def decorated():
    calls = {"k": 2.0}

    def decorate(fn):
        @functools.wraps(fn)
        def inner(*args):
            return fn(*args) * calls["k"]

        return inner

    program = decorate(scale)
    yield lambda x: program(x)
    calls["k"] = 3.0
    yield
    calls["unused"] = 1
    yield SAME


@changes
def facts_about_a_function():
    def g(a):
        return a

    yield lambda x: x * len(g.__name__) + g.__code__.co_argcount + (1 if g.__doc__ else 2)
    g.__name__ = "longer"
    yield
    g.__code__ = (lambda a, b: a).__code__
    yield
    g.__doc__ = "text"
    yield


@changes
def signature():
    def g(a):
        return a

    yield lambda x: x * len(inspect.signature(g).parameters)
    g.__code__ = (lambda a, b: a).__code__
    yield
    g.__signature__ = inspect.signature(lambda a, b, c: a)
    yield


@changes
def parts_of_a_signature():
    def g(a: int, *, b: int = 1):
        return a

    yield lambda x: (x + 1, str(inspect.signature(g)))
    g.__annotations__["a"] = float
    yield
    g.__kwdefaults__["b"] = 2
    yield
    del g.__annotations__["b"]
    yield


@changes
def imported_again():
    def program(x):
        import math
        from math import e

        return x * math.pi + e

    pi = math.pi
    yield program
    math.pi = 3.0
    yield
    math.pi = pi
    sys.modules["math"] = types.SimpleNamespace(pi=1.0, e=2.0)
    yield
    sys.modules["math"] = math
