"""Instances of subclasses of int, float and str: plain, with methods, with operators of their own.

PYTEST_DONT_REWRITE
"""

import math

from tests.programs.program import X, program


class Count(int):
    def twice(self):
        return self * 2


class Rate(float):
    def half(self):
        return self / 2


class Word(str):
    def shout(self):
        return self.upper() + "!"


THREE = Count(3)


@program()
def made_inside(x):
    n, rate, word = Count(3), Rate(1.5), Word("ab")
    return x * n + rate, n.twice(), rate.half(), word.shout(), len(word), -n, +rate, abs(n)


@program()
def returned(x):
    return x * 2, Count(3), Rate(0.5), Word("a"), type(Count(3) + 1), Count(3) is Count(3)


@program()
def of_the_module(x):
    return x * THREE, THREE + 1, THREE.twice(), THREE, THREE is THREE


@program(args=(X, Count(2), Rate(1.5)))
def arguments(x, n, rate):
    return x * n + rate, n, n.twice(), rate.half(), isinstance(n, int), type(n)


@program(calls=[(X, Count(2)), (X, Count(2)), (X, Count(3)), (X, 3), (X, True)], graphs=4)
def guarded_by_class_and_value(x, n):
    return x * n, type(n)


@program(calls=[(X, Rate(0.0)), (X, Rate(-0.0))], graphs=2)
def signed_zeros(x, rate):
    return x * rate, math.copysign(1, rate)


@program(calls=[(X, Word("sum")), (X, Word("prod")), (X, "sum")], graphs=3)
def text_argument(x, name):
    return x.sum() if name == "sum" else x.prod()


@program()
def as_sizes_and_positions(x):
    total = x
    for k in range(Count(3)):
        total = total + k
    items = [1, 2, 3]
    return total.reshape(Count(4), Count(3)), x[Count(1)], items[Count(1)]


@program()
def as_keys(x):
    table = {Word("a"): 1, "b": 2, Count(1): 3}
    return x * table["a"] + table[Word("b")] + table[1], Count(1) in table, list(table)


@program()
def compared(x):
    n = Count(4)
    return x + (n == 4) + (n in (4, 5)) + (4 in [n]) + (n > 3), n == "4", max(n, 2), bool(Count(0))


@program()
def compared_with_tensors(x):
    return x == Count(2), Count(2) < x, x ** Count(2), Count(2) ** x, Rate(0.5) - x, x // Count(2)


@program()
def texts(x):
    n, word = Count(3), Word("ab")
    return (
        x + 1,
        f"{n}",
        f"{n:04d}",
        "%d %s" % (n, word),
        str(word),
        repr(n),
        "-".join("ab"),
        word[0],
    )


@program()
def functions(x):
    n = Count(9)
    return (
        x * math.sqrt(n),
        int(n),
        float(n),
        hash(n) == hash(9),
        sum([n, n]),
        divmod(n, 2),
        round(Rate(1.5)),
    )


class Modular(int):
    def __new__(cls, value, base=5):
        self = super().__new__(cls, value % base)
        self.base = base
        return self

    def __add__(self, other):
        return Modular(super().__add__(other), self.base)

    def __radd__(self, other):
        return Modular(int(self) + other, self.base)

    def __repr__(self):
        return f"{int(self)} mod {self.base}"


@program()
def operators_of_its_own(x):
    n = Modular(3) + 4
    return x * int(n), n, n.base, 4 + n, str(n), f"{n}"


SEVEN = Modular(7)


RUNS = [0]


def rebase():
    RUNS[0] += 1
    SEVEN.base = (
        RUNS[0] // 3
    )  # both sides of the first call see another value than those of the second


@program(before=rebase, graphs=2)
def attribute_that_changes(x):
    return x * SEVEN.base


@program(args=lambda: (X, Modular(4)), state=lambda: SEVEN.base)
def attribute_written(x, n):
    n.base = 9
    made = Count(2)
    made.tag = "t"
    return x * 2, n, made, made.tag


class Backwards(int):
    def __radd__(self, other):
        return "asked"

    def __rmul__(self, other):
        return "asked"


@program(breaks="opaque_object opaque_object")
def operand_on_the_right(x):
    # A float's own operator comes first, but one of an int asks the subclass first.
    return x + 1, 1 + Backwards(2), 1.5 + Backwards(2), Rate(1.0) * Backwards(2)


@program()
def tensor_on_the_left(x):
    # The tensor's operator comes first.
    return x * 2, x * Backwards(3)


class Never(int):
    def __eq__(self, other):
        return NotImplemented

    __hash__ = int.__hash__


@program(breaks="opaque_object")
def refuses_to_compare(x):
    return x + 1, Never(1) == Never(1)


class Loud(str):
    def __str__(self):
        return "loud"


@program()
def own_text(x):
    return x + 1, str(Loud("a")), "%s" % Loud("a"), f"{Loud('a')}", Loud("a") + "b", Loud("a%s") % 1


@program(args=(X, Rate("nan")))
def not_a_number(x, rate):
    return x * rate, rate == rate, rate in [rate]


class Foreign(int):
    """Methods written in C, of classes that it does not inherit from: a call raises."""

    __eq__ = str.__eq__
    __hash__ = int.__hash__
    __add__ = str.__add__
    __neg__ = float.__neg__
    __getitem__ = str.__getitem__


class ForeignText(str):
    __lt__ = int.__lt__
    __mul__ = str.__mul__


def tries(*functions):
    results = []
    for function in functions:
        try:
            results.append(function())
        except TypeError as error:
            results.append(str(error))
    return results


@program(breaks="attribute")
def operators_of_another_class(x):
    y, n = x + 1, Foreign(3)
    return y, tries(lambda: n == 3, lambda: 3 == n, lambda: n + 1, lambda: -n, lambda: n[0])


@program(args=(X, Foreign(3), ForeignText("a")), breaks="attribute")
def arguments_with_operators_of_another_class(x, n, text):
    y = x + 1
    return y, tries(lambda: n == 3, lambda: text < "b", lambda: text * 2, lambda: n * 2)


@program(breaks="attribute")
def raises_at_a_comparison(x):
    y = x + 1
    return y, Foreign(3) == 3
