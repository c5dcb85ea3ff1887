"""An object's attributes and its dictionary are one thing, by whatever name the program reaches it.

PYTEST_DONT_REWRITE
"""

from tests.programs.changing import SAME, changes
from tests.programs.program import X, program


class Point:
    def __init__(self):
        self.k = 2.0


class AttributeDict(dict):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.__dict__ = self


class Slots:
    __slots__ = ("k",)


def pair(make=Point):
    point = make()
    return X, point, point.__dict__


def two_with_one():
    a, b = Point(), Point()
    b.__dict__ = a.__dict__
    return X, a, b


@program(args=lambda: (X, Point()))
def is_one_object(x, point):
    new = Point()
    table = new.__dict__
    table["m"] = 1
    return (
        x + point.k,
        point.__dict__ is point.__dict__,
        vars(point) is point.__dict__,
        table is vars(new),
        table is point.__dict__,
        new.m,
    )


@program(graphs=2, breaks="print shared_dictionary", args=lambda: (X, Point()))
def over_a_break(x, point):
    table = point.__dict__
    y = x + 1
    print("break")
    table["k"] = 5.0
    return y * point.k, table is point.__dict__


@program(args=pair)
def given_beside_the_object(x, point, table):
    old = point.k
    table["k"] = 3.0
    first = x * point.k
    point.k = 4.0
    return first * table["k"] * old, table is point.__dict__


@program(graphs=2, breaks="shared_dictionary", args=pair)
def given_and_written_first(x, point, table):
    y = x + 1
    table["k"] = 3.0
    return y, x * point.k


@program(breaks="shared_dictionary", args=pair)
def read_first_and_then_written_by_the_object(x, point, table):
    y = x + table["k"]
    point.k = 9.0
    return y, table["k"], len(table)


@program(args=pair)
def only_read(x, point, table):
    return x * table["k"] * point.k


@program(args=lambda: (X, AttributeDict(k=2.0, m=3.0)))
def object_that_is_its_own_dictionary(x, config):
    return x * config.k + config["m"]


@program(breaks="shared_dictionary", args=lambda: (X, AttributeDict(k=2.0, m=3.0)))
def object_that_is_its_own_dictionary_is_written(x, config):
    y = x * config.k
    config.k = 5.0
    return y, config["k"]


@program(graphs=2, breaks="shared_dictionary", args=lambda: (X, AttributeDict(k=2.0, m=3.0)))
def item_of_an_object_that_is_its_own_dictionary(x, config):
    y = x * config.k
    config["k"] = 5.0
    return y * config.k


@program(graphs=2, breaks="shared_dictionary", args=two_with_one)
def two_objects_with_one_dictionary(x, a, b):
    y = x * b.k
    a.k = 7.0
    return y * b.k


@changes
def later_one_dictionary():
    a, b, table = Point(), Point(), {"k": 2.0}
    a.other = b.other = 1

    def f(x):
        a.k = 5.0
        y = x * b.k + table["k"]
        a.k = 2.0
        return y

    yield f, X
    b.__dict__ = a.__dict__
    yield
    table = b.__dict__
    yield
    yield SAME
