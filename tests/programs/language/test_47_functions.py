"""Functions: closures, decorators, every kind of parameter, lambdas, recursion, and limits that end a capture instead of hanging.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

import functools

from tests.programs.program import X, program

COUNT = 0


@program()
def closure_that_escapes(x):
    n = 2
    y = x + n

    def inner(z):
        return z * n

    n = 3
    return y, inner(x)


@program()
def nonlocal_counter(x):
    n = 0

    def up():
        nonlocal n
        n += 1
        return n

    up()
    up()
    return x + n


@program()
def old_value_of_a_nonlocal(x):
    n = x

    def swap(new):
        nonlocal n
        old = n
        n = new
        return old

    return swap(x + 1), swap(x + 2), n


def reset():
    global COUNT
    COUNT = 0


@program(before=reset, state=lambda: COUNT)
def global_write(x):
    global COUNT
    COUNT += 2
    return x + COUNT


def twice(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(fn(*args, **kwargs), **kwargs)

    return wrapper


@twice
def add(x, by=1):
    return x + by


@program()
def decorated(x):
    return add(x), add(x, by=3), add.__name__


@program()
def decorator_with_arguments_in_the_frame(x):
    def times(n):
        def decorate(fn):
            return lambda x: fn(x) * n

        return decorate

    @times(3)
    def plus(x):
        return x + 1

    return plus(x)


def every_kind(a, b=2, /, c=3, *rest, d, e=5, **more):
    return a * b + c + sum(rest) + d + e + sum(more.values()), sorted(more)


@program()
def parameters(x):
    return (
        every_kind(x, d=1),
        every_kind(x, 1, 2, 3, 4, d=5, e=6, f=7),
        every_kind(x, c=1, d=2, b=9),
    )


@program()
def spread_arguments(x):
    pair, names = (1, 2), {"d": 4, "z": 1}
    return every_kind(x, *pair, *[3], **names), every_kind(*(x,), **{**names, "e": 0})


@program()
def mutable_default_is_shared(x):
    def collect(item, into=[]):
        into.append(item)
        return len(into)

    return x + collect(1) + collect(2)


@program()
def lambdas(x):
    f = lambda a, *b, k=2: a * k + sum(b)
    return f(x), f(x, 1, 2, k=3), (lambda: x + 1)()


@program()
def recursion(x):
    def down(y, n):
        return y if n == 0 else down(y + n, n - 1)

    return down(x, 10)


@program()
def walrus(x):
    if (n := x.shape[0]) > 2 and (m := n + 1):
        return x * n + m
    return x


@program()
def chained_comparisons(x):
    calls = []

    def mid():
        calls.append(1)
        return 2

    return x + (1 < mid() < 3 < 10), x.ndim == 2 != 3, calls


@program()
def deletions(x):
    y, d, items = x + 1, {"a": 1, "b": 2}, [1, 2, 3, 4]
    z = y
    del y, d["a"], items[1:3]
    return z, d, items


@program()
def stars(x):
    first, *middle, last = [1, 2, 3, 4]
    (a, b), *c = [(5, 6), 7]
    return x + first + last, [*middle, *c], {*middle}, (*middle, a, b)


@program()
def f_strings(x):
    name, n = "n", 3.14159
    return x + 1, f"{name!r:>5}|{n:.2f}|{x.shape}|{n=:.1f}|{{}}|{name:{'<4'}}|"


@program()
def asserts(x):
    assert x.ndim == 2, "two"
    try:
        assert x.ndim == 3, f"not {x.ndim}"
    except AssertionError as error:
        return x + 1, str(error)


@program(graphs=3, breaks="class_statement")
def class_body_is_left_to_python(x):
    y = x + 1

    class Local:
        size = y.shape[0]

        def scaled(self, z):
            return z * self.size

    return Local().scaled(y)


async def later(x):
    return x + 1


@program()
def coroutine_is_driven(x):
    y = x + 1
    task = later(y)
    try:
        task.send(None)
    except StopIteration as stop:
        return stop.value


@program()
def unrolled_loop(x):
    for _ in range(100):
        x = x + 1
    return x


@program(graphs=0, plain=True)
def loop_without_tensors(x):
    n = 0
    for i in range(10**6):
        n += i
    return x + n


def fall(x, n):
    return x if n == 0 else fall(x + 1, n - 1)


@program(args=(X, 150), breaks="too_deep")
def deep_recursion(x, n):
    return fall(x, n)


@program()
def operands_of_a_function(x):
    def plain(a, *, b): ...

    def full(a, b=2, c=x): ...

    same = full.__defaults__ is full.__defaults__
    return (
        x + 1,
        plain.__defaults__,
        plain.__kwdefaults__,
        full.__defaults__,
        same,
        full,
        full.__closure__,
    )
