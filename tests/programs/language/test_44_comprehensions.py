"""Comprehensions of all kinds.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

from tests.programs.program import program


@program()
def lists(x):
    return [x + i for i in range(3)]


@program()
def sets_and_dicts(x):
    return x + 1, {i % 2 for i in range(5)}, {k: len(k) for k in ("a", "bb")}, {**{"z": 1}}


@program()
def conditions(x):
    return [i for i in range(9) if i % 2 if i > 3], [i if i else x + 1 for i in range(2)]


@program()
def nested_loops(x):
    return x + sum([a * b for a in range(3) for b in range(a)])


@program()
def nested_comprehensions(x):
    return x + 1, [[(i, j) for j in range(i)] for i in range(3)]


@program()
def loop_variable_stays_inside(x):
    i = 10
    squares = [i * i for i in range(3)]
    return x + i, squares


@program()
def free_variables(x):
    n = 3
    return [x * n + i for i in range(2)], [lambda: n for _ in range(1)][0]()


@program()
def closures_over_the_loop_variable(x):
    fs = [lambda: i for i in range(3)]
    return x + 1, [f() for f in fs]


@program()
def defaults_keep_the_loop_variable(x):
    fs = [lambda i=i: i for i in range(3)]
    return x + 1, [f() for f in fs]


@program()
def walrus_inside_binds_outside(x):
    rows = [last := i * 2 for i in range(3)]
    return x + last, rows


@program()
def unpacking_targets(x):
    return (
        x + 1,
        [a + b for a, (b, *c) in [(1, (2, 3)), (4, (5,))]],
        {k: v for k, v in {"a": 1}.items()},
    )


@program()
def exception_inside(x):
    try:
        [1 // n for n in (1, 0)]
    except ZeroDivisionError:
        return x + 1


@program()
def comprehension_over_a_tensor(x):
    return [row * 2 for row in x]


@program(graphs=2, breaks="print")
def call_that_breaks_inside(x):
    def shown(i):
        print(i)
        return i

    y = x + 1
    return [y * shown(i) for i in (2,)]


@program()
def method_with_comprehension(x):
    class_free = Holder()
    return class_free.scaled(x)


class Holder:
    factors = (1, 2)

    def scaled(self, x):
        return [x * f for f in self.factors if self]
