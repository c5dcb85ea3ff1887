"""Comprehensions of all kinds.

PYTEST_DONT_REWRITE (the programs' own asserts are part of the tests)
"""

from tests.programs.program import X, program


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


# Since 3.12 a comprehension runs in the function's own frame: a variable that it hides waits on the stack, as its cell if a closure holds it.


@program(graphs=1, breaks="print print")
def hides_cell_over_break(x):
    k = 10
    inside = [print("item", k) or (lambda: k + x) for k in range(2)]
    k += 1
    return [fn() for fn in inside], (lambda: k)()


@program(graphs=1, breaks="print print")
def hides_cell_until_an_error(x):
    k = 10
    outside = lambda: k  # noqa: E731
    try:
        [print("item", k) or ((lambda: k), 1 // (1 - k)) for k in range(3)]
    except ZeroDivisionError:
        k += 1
    return outside(), x + k


@program(graphs=1)
def hides_cell_that_stays_empty(x):
    inside = [(lambda: k + x) for k in range(2)]

    def outside():
        return k  # noqa: F821

    if inside is None:
        k = 1
    return [fn() for fn in inside], outside


@program(graphs=0, breaks="print print unbound")
def hides_empty_cell_over_break(x):
    inside = [print("item", k) or (lambda: k + x) for k in range(2)]
    try:
        return k, inside
    except NameError as error:
        message = str(error)
    k = 1
    return message, [fn() for fn in inside]


@program(graphs=1, breaks="print print", args=(X, 3))
def hides_argument_over_break(x, k):
    inside = [print("item", k) or (lambda: k + x) for k in range(2)]
    return [fn() for fn in inside], (lambda: k)()


def same_name_as_free(k):
    def plain(x):
        return [k for k in range(2)], x + k

    def over_break(x):
        inside = [print("item", k) or [k for _ in range(2)] for k in range(2)]
        return inside, x + k

    def held(x):  # CPython itself takes the variable of the comprehension for the free one
        inside = [(lambda: k + x) for k in range(2)]
        return [fn() for fn in inside], x + k

    def held_over_break(x):
        inside = [print("item", k) or (lambda: k + x) for k in range(2)]
        return [fn() for fn in inside], x + k

    return plain, over_break, held, held_over_break


@program(graphs=1)
def hides_free_variable(x):
    plain, _, held, _ = same_name_as_free(4)
    return plain(x), held(x)


@program(graphs=2, breaks="print print print print")
def hides_free_variable_over_break(x):
    _, over_break, _, held_over_break = same_name_as_free(4)
    return over_break(x), held_over_break(x)


_plain, _over_break, _held, _held_over_break = same_name_as_free(4)
hides_own_free_variable = program(graphs=1, breaks="print print")(_over_break)
hides_own_held_variable = program(graphs=1, breaks="print print")(_held_over_break)
